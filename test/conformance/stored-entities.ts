import { afterAll, beforeAll, describe, expect, test } from "vitest";
import * as z from "zod";
import { sql } from "../../core/database/sql.ts";
import type { EntityWrite } from "../../core/journal/entities.ts";
import type { Journal } from "../../core/journal/journal.ts";
import { UnknownOutcomeError } from "../../core/lock/errors.ts";
import type { Runtime } from "../../core/steps/contract.ts";
import { entity } from "../../core/steps/entity/entity.ts";
import { createRuntime } from "../../core/steps/runtime.ts";
import { injectFaults } from "../../core/steps/testing.ts";
import { sqlJournal } from "../../core/stores/sql/journal/index.ts";
import { account, hooks } from "../support/account.ts";
import type { JournalUnderTest } from "../support/journal-under-test.ts";
import { runScript, type Script } from "../support/script.ts";
import { newKey } from "./entities.ts";

/** A journal with data of users, in a database that other processes share. */
export interface StoredEntitiesUnderTest {
  /** Undefined if no other process of Node can open the database. */
  readonly url: string | undefined;
  readonly journal: Journal;

  /** The write of a booking, which the database refuses if the name is booked. */
  book(name: string): EntityWrite;
  isBooked(name: string): Promise<boolean>;

  /** A write that the journal does not take, and why. */
  readonly foreign: { readonly write: EntityWrite; readonly problem: string };

  /** Opens another client of the journal that loses every second answer to a write. `count` returns the number of answers. */
  openLossy(): { readonly journal: Journal; readonly count: () => number };
  close(): Promise<void>;
}

/** Entities in a SQL database. */
export function describeSqlEntities(name: string, make: () => Promise<JournalUnderTest>): void {
  describeStoredEntities(name, async () => {
    const underTest = await make();
    if (!underTest.openDatabase) throw new Error("no database");
    const database = underTest.openDatabase();
    await database.batch([sql`CREATE TABLE booking (name VARCHAR(64) NOT NULL PRIMARY KEY)`]);
    return {
      url: underTest.url,
      journal: sqlJournal(database),
      book: (name) => sql`INSERT INTO booking (name) VALUES (${name})`,
      async isBooked(name) {
        const rows = await database.read(sql`SELECT name FROM booking WHERE name = ${name}`);
        return rows.length === 1;
      },
      foreign: {
        write: sql`COMMIT`,
        problem: "statements that read or change rows, not COMMIT",
      },
      openLossy() {
        let count = 0;
        const lossy = injectFaults(database, (point) => {
          if (point !== "batch:after") return;
          count += 1;
          if (count % 2 === 1) throw new UnknownOutcomeError(database.address, "it was done");
        });
        return { journal: sqlJournal(lossy), count: () => count };
      },
      async close() {
        await database.close();
        await underTest.close();
      },
    };
  });
}

export function describeStoredEntities(
  name: string,
  make: () => Promise<StoredEntitiesUnderTest>,
): void {
  describe(`entities in the database ${name}`, () => {
    let underTest: StoredEntitiesUnderTest;
    let runtime: Runtime;

    beforeAll(async () => {
      underTest = await make();
      runtime = createRuntime({ journal: underTest.journal, lease: 2_000 });
      hooks.deposit = async () => {};
      hooks.book = underTest.book;
    });

    afterAll(() => underTest.close());

    test("commit the writes of a handler together with its state", async () => {
      const mine = runtime.entity(account, newKey());
      expect(await mine.call("book", "seat 1", { operationId: "1" })).toBe("booked");
      expect(await mine.call("book", "seat 1", { operationId: "1" })).toBe("booked");
      expect(await mine.state()).toMatchObject({ balance: 1 });
      expect(await underTest.isBooked("seat 1")).toBe(true);
    });

    test("answer with a failure when the database refuses the writes, and keep the other operations", async () => {
      const mine = runtime.entity(account, newKey());
      await mine.call("book", "seat 2", { operationId: "1" });
      await mine.tell("deposit", 10, { operationId: "2" });
      await mine.tell("book", "seat 2", { operationId: "3" });
      expect(await mine.call("deposit", 5, { operationId: "4" })).toBe(16);
      await expect(mine.call("book", "seat 2", { operationId: "3" })).rejects.toThrow();
      expect(await mine.state()).toMatchObject({ balance: 16 });
    });

    test("refuse writes that the journal does not take", async () => {
      const { write, problem } = underTest.foreign;
      const failing = entity({ name: "failing", state: z.number(), initial: 0 }, (on) => ({
        fail: on(z.string(), async () => ({ state: 1, writes: [write] })),
      }));
      const mine = runtime.entity(failing, newKey());
      const fail = mine.call("fail", "", { operationId: "1" });
      await expect(fail).rejects.toThrow(problem);
      expect(await mine.state()).toBe(0);
    });

    test("handle each operation once when every second answer of the database is lost", async () => {
      const { journal, count } = underTest.openLossy();
      const mine = createRuntime({ journal }).entity(account, newKey());
      for (let i = 1; i <= 5; i += 1) {
        expect(await mine.call("deposit", 1, { operationId: String(i) })).toBe(i);
      }
      const seat = newKey();
      expect(await mine.call("book", seat, { operationId: "book" })).toBe("booked");
      await expect(mine.call("book", seat, { operationId: "again" })).rejects.toThrow();
      expect(await mine.state()).toMatchObject({ balance: 6 });
      expect(count()).toBeGreaterThan(10);
    });

    test("lose no operation of 32 callers in 4 processes when two of them are killed or frozen", async ({
      skip,
    }) => {
      const { url } = underTest;
      if (url === undefined) return skip("no other process can open the store");
      const key = newKey();
      const start = (first: number, ...more: readonly string[]) =>
        runScript("deposit", url, key, String(first), "8", "5", ...more);
      // In a handler: a process that stops within a transaction on SQLite keeps all others from writing.
      const frozen = start(0, "freeze");
      const processes = [frozen, start(8), start(16), start(24)] as const;
      const [, killed, ...others] = processes;
      for (const process of processes) expect(await process.line()).toBe("ready");
      frozen.child.kill("SIGUSR2");
      expect(await frozen.line()).toBe("frozen");
      for (const { child } of [killed, ...others]) child.kill("SIGUSR2");
      expect(await killed.line()).toBe("one");
      killed.child.kill("SIGKILL");
      for (const other of others) expect(await lastLine(other)).toBe("done");
      frozen.child.kill("SIGCONT");
      expect(await lastLine(frozen)).toBe("done");
      using again = start(8);
      expect(await again.line()).toBe("ready");
      again.child.kill("SIGUSR2");
      expect(await lastLine(again)).toBe("done");
      expect(await runtime.entity(account, key).state()).toMatchObject({ balance: 32 * 5 });
      for (const process of processes) process[Symbol.dispose]();
    });
  });
}

async function lastLine(script: Script): Promise<string | undefined> {
  let last: string | undefined;
  for (let line = await script.next(); line !== undefined; line = await script.next()) last = line;
  return last;
}
