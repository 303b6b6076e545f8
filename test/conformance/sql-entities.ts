import { afterAll, beforeAll, describe, expect, test } from "vitest";
import * as z from "zod";
import { type Database, sql } from "../../core/database/sql.ts";
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

/** Tests of entities in a database, which other processes share. */
export function describeSqlEntities(name: string, make: () => Promise<JournalUnderTest>): void {
  describe(`entities in the database ${name}`, () => {
    let underTest: JournalUnderTest;
    let database: Database;
    let runtime: Runtime;

    beforeAll(async () => {
      underTest = await make();
      if (!underTest.openDatabase) throw new Error("no database");
      database = underTest.openDatabase();
      runtime = createRuntime({ journal: sqlJournal(database), lease: 2_000 });
      await database.batch([sql`CREATE TABLE booking (name VARCHAR(64) NOT NULL PRIMARY KEY)`]);
      hooks.deposit = async () => {};
    });

    afterAll(async () => {
      await database.close();
      await underTest.close();
    });

    test("commit the writes of a handler together with its state", async () => {
      const mine = runtime.entity(account, newKey());
      expect(await mine.call("book", "seat 1", { operationId: "1" })).toBe("booked");
      expect(await mine.call("book", "seat 1", { operationId: "1" })).toBe("booked");
      expect(await mine.state()).toMatchObject({ balance: 1 });
      expect(await database.read(sql`SELECT name FROM booking WHERE name = 'seat 1'`)).toHaveLength(
        1,
      );
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

    test("refuse writes that would end the transaction", async () => {
      const ending = entity({ name: "ending", state: z.number(), initial: 0 }, (on) => ({
        end: on(z.string(), async () => ({ state: 1, writes: [sql`COMMIT`] })),
      }));
      const mine = runtime.entity(ending, newKey());
      const end = mine.call("end", "", { operationId: "1" });
      await expect(end).rejects.toThrow("statements that read or change rows, not COMMIT");
      expect(await mine.state()).toBe(0);
    });

    test("handle each operation once when every second answer of the database is lost", async () => {
      let count = 0;
      const lossy = injectFaults(database, (point) => {
        if (point !== "batch:after") return;
        count += 1;
        if (count % 2 === 1) throw new UnknownOutcomeError(database.address, "it was done");
      });
      const mine = createRuntime({ journal: sqlJournal(lossy) }).entity(account, newKey());
      for (let i = 1; i <= 5; i += 1) {
        expect(await mine.call("deposit", 1, { operationId: String(i) })).toBe(i);
      }
      expect(count).toBeGreaterThan(10);
    });

    test("lose no operation of 32 callers in 4 processes when two of them are killed or frozen", async ({
      skip,
    }) => {
      const { url } = underTest;
      // Without a URL, no other process of Node can open the database.
      if (url === undefined) return skip();
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
