import { afterAll, beforeAll, describe } from "vitest";
import type { JournalClient, JournalUnderTest } from "../support/journal-under-test.ts";
import { late } from "../support/late.ts";
import { describeChildren } from "./journal-children.ts";
import { describeContinuing } from "./journal-continue.ts";
import { describeForks } from "./journal-fork.ts";
import { describeHistories } from "./journal-histories.ts";
import { describeLeases } from "./journal-leases.ts";
import { describeParking } from "./journal-parking.ts";
import { describeRecords } from "./journal-records.ts";
import { describeReopening } from "./journal-reopen.ts";
import { describeResults } from "./journal-results.ts";
import { describeKeyedStarts } from "./journal-starts.ts";
import { describeTurns } from "./journal-turns.ts";

/** Tests each property of the journal contract. */
export function describeJournal(name: string, make: () => Promise<JournalUnderTest>): void {
  describe.concurrent(`a journal on ${name}`, () => {
    let opened: JournalUnderTest;
    let client: JournalClient;

    beforeAll(async () => {
      opened = await make();
      client = opened.open();
    });

    afterAll(async () => {
      await client.close();
      await opened.close();
    });

    const fixture = { underTest: late(() => opened), journal: late(() => client.journal) };
    describeLeases(fixture);
    describeKeyedStarts(fixture);
    describeRecords(fixture);
    describeHistories(fixture);
    describeContinuing(fixture);
    describeParking(fixture);
    describeResults(fixture);
    describeReopening(fixture);
    describeForks(fixture);
    describeTurns(fixture);
    describeChildren(fixture);
  });
}
