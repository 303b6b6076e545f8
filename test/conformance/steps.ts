import { afterAll, beforeAll, describe } from "vitest";
import { describeAttempts } from "./steps/attempts.ts";
import { describeCancels } from "./steps/cancels.ts";
import { describeChildRuns } from "./steps/children.ts";
import { describeContinues } from "./steps/continues.ts";
import { describeFamilyCancels } from "./steps/family-cancels.ts";
import { describeForks } from "./steps/forks.ts";
import { type StepsUnderTest, stepsHarness } from "./steps/harness.ts";
import { describeLongHistories } from "./steps/histories.ts";
import { describeReplay } from "./steps/replay.ts";
import { describeRetries } from "./steps/retries.ts";
import { describeRuns } from "./steps/runs.ts";
import { describeStarts } from "./steps/starts.ts";
import { describeTesting } from "./steps/testing.ts";
import { describeUndos } from "./steps/undos.ts";
import { describeUpdates } from "./steps/updates.ts";
import { describeWaitsAndMaps } from "./steps/waits.ts";

/** The promises of workflows on every journal. */
export function describeSteps(name: string, open: () => Promise<StepsUnderTest>): void {
  describe.concurrent(`workflows on ${name}`, () => {
    let under: StepsUnderTest;
    const harness = stepsHarness(() => under);

    beforeAll(async () => {
      under = await open();
    });

    afterAll(async () => {
      await harness.close();
      await under.close();
    });

    describeRuns(harness);
    describeAttempts(harness);
    describeReplay(harness);
    describeLongHistories(harness);
    describeContinues(harness);
    describeWaitsAndMaps(harness);
    describeUndos(harness);
    describeCancels(harness);
    describeFamilyCancels(harness);
    describeUpdates(harness);
    describeRetries(harness);
    describeForks(harness);
    describeTesting(harness);
    describeChildRuns(harness);
    describeStarts(harness);
  });
}
