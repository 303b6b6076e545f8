import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type Database, raw, sql, type Transaction } from "../../core/database/sql.ts";
import { stockLock } from "../../core/inventory/inventory.ts";
import type { Journal } from "../../core/journal/journal.ts";
import type { NewRecord, StepRecord } from "../../core/journal/records.ts";
import type { RunKey } from "../../core/journal/runs.ts";
import { UnknownOutcomeError } from "../../core/lock/errors.ts";
import type { Fence } from "../../core/lock/fence.ts";
import type { LockStore } from "../../core/lock/lock.ts";
import { injectFaults } from "../../core/steps/testing.ts";
import { memoryLocks } from "../../core/stores/memory/locks.ts";
import { sqlInventory } from "../../core/stores/sql/inventory/index.ts";
import { sqlJournal } from "../../core/stores/sql/journal/index.ts";
import type { TransactionalInventory } from "../../core/stores/transactional-inventory.ts";
import type { JournalUnderTest } from "../support/journal-under-test.ts";
import { delaying } from "../support/lossy.ts";
import { claimed, claimOf, DONE, newRunId, record, running } from "../support/runs.ts";
import type { Opened } from "../support/stock-within.ts";
import { pause, until } from "../support/until.ts";
import { describeLostMessages, type TransactOptions } from "./lost-messages.ts";

/** Tests steps that commit in one transaction with their records. */
export function describeTransactions(name: string, make: () => Promise<JournalUnderTest>): void {
  describe(`steps in transactions on ${name}`, () => {
    let underTest: JournalUnderTest;
    let database: Database;
    let journal: Journal;
    let inventory: TransactionalInventory;
    let locks: LockStore;
    const opened: Database[] = [];

    beforeAll(async () => {
      underTest = await make();
      database = openDatabase();
      journal = sqlJournal(database);
      inventory = sqlInventory(database);
      locks = memoryLocks();
      await database.batch([sql`CREATE TABLE effect (name VARCHAR(64) NOT NULL)`]);
      await database.batch([sql`CREATE TABLE once (name VARCHAR(64) NOT NULL PRIMARY KEY)`]);
    });

    afterAll(async () => {
      await locks.close();
      for (const one of opened) await one.close();
      await underTest.close();
    });

    const openDatabase = (): Database => {
      if (!underTest.openDatabase) throw new Error("there is no database");
      const one = underTest.openDatabase();
      opened.push(one);
      return one;
    };

    /** Whether other clients can write while a transaction is open. A transaction on SQLite locks the whole file. */
    const isShared = () => database.dialect.name !== "sqlite";
    const locksRows = () => isShared() && !database.dialect.isOptimistic;

    const sleep = () => raw(database.dialect.name === "postgres" ? "pg_sleep" : "SLEEP");

    const effect = (id: string) => sql`INSERT INTO effect (name) VALUES (${id})`;

    const effects = async (id: string) =>
      Number((await database.read(sql`SELECT COUNT(*) AS n FROM effect WHERE name = ${id}`))[0]?.n);

    const transact = (
      run: RunKey,
      key: string,
      body: (tx: Opened) => Promise<NewRecord>,
      { fences = [], signal, on = journal }: TransactOptions = {},
    ): Promise<StepRecord> => {
      if (!on.transact) throw new Error("no transactions");
      return on.transact(run, { key, fences }, body, signal);
    };

    test("a large result is committed with the changes, and is read by its key", async () => {
      const run = await running(journal);
      const value = "é".repeat(2 ** 20);
      const body = async (tx: Opened) => {
        await tx.batch([effect(run.runId)]);
        return record("a", { kind: "tx", value });
      };
      const first = await transact(run, "a", body);
      expect(first).toMatchObject({ value, valueBytes: 2 * value.length });
      expect(await transact(run, "a", body)).toEqual({ ...first, value: undefined });
      expect((await journal.values(run.runId, ["a"])).get("a") === value).toBe(true);
      expect(await effects(run.runId)).toBe(1);
    });

    const leaving = (id: string, key: string) => async (tx: Opened) => {
      await tx.batch([effect(id)]);
      return record(key, { kind: "tx" });
    };

    const recordsOf = async ({ runId }: RunKey) =>
      (await journal.show(runId))?.records.map(({ key }) => key);

    const stocked = async (quantity: number): Promise<string> => {
      const sku = `sku of ${newRunId()}`;
      await inventory.set({ sku, quantity, operationId: `${sku}/set` });
      return sku;
    };

    const taking = (runId: string): Promise<RunKey> =>
      until(async () => {
        const answer = await journal.take({ runId, owner: "a successor", ttl: 20_000 });
        return answer.kind === "claimed" && { runId, epoch: answer.epoch };
      });

    test("a reopening whose answer was lost is recognised after the run was claimed, and does not reach its new records", async () => {
      const { claim, ...run } = await running(journal);
      await journal.append(run, record("a"));
      await journal.finish(run, { ...DONE, status: "failed" });
      let next: RunKey | undefined;
      const cut = sqlJournal(
        injectFaults(database, async (point) => {
          if (point !== "batch:after" || next) return;
          next = { ...run, epoch: (await claimed(journal, claim)).epoch };
          await journal.append(next, record("a", { value: '"new"' }));
          throw new UnknownOutcomeError("the wire", "a request was executed");
        }),
      );
      expect(await cut.reopen(run, { supersede: ["a"], isRetry: true })).toBe(true);
      expect(await recordsOf(run)).toEqual([`~old/${run.epoch}/a`, "a"]);
      expect(await cut.reopen(run, { supersede: ["a"], isRetry: true })).toBe(false);
    });

    test("the body's changes and the record are committed together, under the fence, and once", async () => {
      const run = await running(journal);
      const sku = await stocked(9);
      await using lock = await locks.lock(stockLock(sku), { ttl: 20_000, wait: 0 });
      const { fence } = lock;
      let bodies = 0;
      const sell = () =>
        transact(
          run,
          "sell",
          async (tx) => {
            bodies += 1;
            const stock = inventory.within(tx);
            const change = { sku, operationId: `${run.runId}/sell`, fence };
            const { remaining } = await stock.decrement({ ...change, quantity: 2 });
            return record("sell", { kind: "tx", value: `${remaining}`, fence: `${fence}` });
          },
          { fences: [fence] },
        );
      const first = await sell();
      expect(first).toMatchObject({ key: "sell", value: "7", epoch: run.epoch, fence: `${fence}` });
      expect(await sell()).toEqual(first);
      expect(bodies).toBe(1);
      expect((await journal.show(run.runId))?.records).toEqual([first]);
      expect(await inventory.get(sku)).toMatchObject({ onHand: 7, sold: 2 });
      expect((await inventory.history(sku))[0]?.fence).toBe(String(fence));
      // A record of an earlier epoch is the answer as well.
      await journal.park(run, { reason: "sleep", wakeIn: 0, signalsSeen: 0 });
      const next = await taking(run.runId);
      expect(await transact(next, "sell", leaving(run.runId, "sell"))).toEqual(first);
      expect(await effects(run.runId)).toBe(0);
    });

    test("a body that rejects, with any value, is rolled back", async () => {
      const run = await running(journal);
      await using lock = await locks.lock(run.runId, { ttl: 20_000, wait: 0 });
      for (const fault of [
        new Error("its own"),
        new UnknownOutcomeError("another store", "something was done"),
        null,
        undefined,
      ]) {
        let bodies = 0;
        const failing = transact(
          run,
          "a",
          async (tx) => {
            bodies += 1;
            await tx.batch([effect(run.runId)]);
            throw fault;
          },
          { fences: [lock.fence] },
        );
        expect(await failing.catch((error: unknown) => ({ error }))).toEqual({ error: fault });
        expect(bodies).toBe(1);
      }
      await expect(transact(run, "a", leaving(run.runId, "b"))).rejects.toThrow(RangeError);
      const tooLarge = record("a", { value: "x".repeat(2 ** 24 + 1) });
      await expect(transact(run, "a", async () => tooLarge)).rejects.toThrow(RangeError);
      expect(await effects(run.runId)).toBe(0);
      expect(await recordsOf(run)).toEqual([]);
      const claims = await database.read(
        sql`SELECT token FROM lockstep_claim WHERE resource = ${run.runId}`,
      );
      expect(claims).toEqual([]);
    });

    test("a late or invalid fence is refused before the body", async () => {
      const run = await running(journal);
      const [a, b] = [`${run.runId}/a`, `${run.runId}/b`];
      const early = await locks.lock(b, { ttl: 20_000, wait: 0 });
      await early.unlock();
      const later = await locks.lock(b, { ttl: 20_000, wait: 0 });
      const other = await locks.lock(a, { ttl: 20_000, wait: 0 });
      await inventory.claim(later.fence);
      const forged: Fence = { ...later.fence, token: 10n ** 12n, toString: () => "forged" };
      let bodies = 0;
      const body = async (tx: Opened) => {
        bodies += 1;
        return leaving(run.runId, "a")(tx);
      };
      const late = transact(run, "a", body, { fences: [early.fence, other.fence] });
      await expect(late).rejects.toMatchObject({
        code: "FENCED_OUT",
        presented: early.fence,
        current: String(later.fence),
      });
      await expect(
        transact(run, "a", body, { fences: [other.fence, forged] }),
      ).rejects.toMatchObject({ code: "FENCE_INVALID" });
      expect(bodies).toBe(0);
      expect(await effects(run.runId)).toBe(0);
      await transact(run, "a", body, { fences: [later.fence, other.fence] });
      expect(await effects(run.runId)).toBe(1);
      await expect(
        inventory.claim(early.fence).then(() => inventory.claim(other.fence)),
      ).rejects.toMatchObject({ code: "FENCED_OUT" });
      for (const lock of [later, other]) await lock.unlock();
    });

    test("a holder that has lost its run is refused, and its body is rolled back", async () => {
      const late = await running(journal, { ttl: 1 });
      await pause(20);
      const successor = await taking(late.runId);
      let bodies = 0;
      const body = async (tx: Opened) => {
        bodies += 1;
        return leaving(late.runId, "a")(tx);
      };
      await expect(transact(late, "a", body)).rejects.toMatchObject({ code: "STALE_RUN" });
      expect(bodies).toBe(0);
      await transact(successor, "a", leaving(late.runId, "a"));
      await expect(transact(late, "a", body)).rejects.toMatchObject({ code: "STALE_RUN" });
      expect(await effects(late.runId)).toBe(1);
    });

    test("a claim of the run during the body rolls the body back", async ({ skip }) => {
      skip(!isShared(), "SQLite has one writer at a time");
      for (const end of ["take", "park", "finish"] as const) {
        const run = await running(journal, { ttl: 30 });
        const other = sqlJournal(openDatabase());
        const overtaken = transact(run, "a", async (tx) => {
          await tx.batch([effect(run.runId)]);
          if (end === "take") await taking(run.runId);
          if (end === "finish") await other.finish(run, DONE);
          const parking = { reason: "sleep", wakeIn: 9_000, signalsSeen: 0 } as const;
          if (end === "park") await other.park(run, parking);
          return record("a");
        });
        await expect(overtaken).rejects.toMatchObject({ code: "STALE_RUN" });
        expect(await effects(run.runId)).toBe(0);
        expect(await recordsOf(run)).toEqual([]);
      }
    });

    test("a record waits for a claim in progress, and is refused", async ({ skip }) => {
      skip(!locksRows(), "the database locks no rows");
      const run = await running(journal);
      await journal.append(run, record("early"));
      const other = openDatabase();
      const writing = await other.transaction(async (tx) => {
        // The first statement of a claim.
        const take = sql`UPDATE lockstep_run SET epoch = epoch + 1 WHERE run_id = ${run.runId}`;
        await tx.batch([take]);
        const writes = Promise.allSettled([
          journal.append(run, record("late")),
          transact(run, "late tx", leaving(run.runId, "late tx")),
        ]);
        await pause(150);
        await tx.commit([]);
        return { writes };
      });
      for (const outcome of await writing.writes) {
        expect(outcome).toMatchObject({ reason: { code: "STALE_RUN" } });
      }
      expect(await recordsOf(run)).toEqual(["early"]);
      expect(await effects(run.runId)).toBe(0);
    });

    test("the holder renews the run during the body", async ({ skip }) => {
      skip(!isShared(), "SQLite has one writer at a time");
      const run = await running(journal, { ttl: 100 });
      await transact(run, "a", async (tx) => {
        await tx.batch([effect(run.runId)]);
        expect(await journal.renew(run, 20_000)).toBeDefined();
        await journal.append(run, record("beside"));
        await pause(150);
        return record("a");
      });
      expect((await journal.claim(run.claim)).kind).toBe("busy");
      expect(await recordsOf(run)).toEqual(["beside", "a"]);
      expect(await effects(run.runId)).toBe(1);
    });

    test("one of many concurrent steps with the same key commits, and all resolve to its record", async () => {
      const run = await running(journal);
      const journals = [journal, sqlJournal(openDatabase()), sqlJournal(openDatabase())];
      const answers = await Promise.all(
        Array.from({ length: 12 }, (_, i) =>
          transact(
            run,
            "a",
            async (tx) => {
              await tx.batch([effect(run.runId)]);
              await pause(5);
              return record("a", { value: `${i}` });
            },
            { on: journals[i % 3] as Journal },
          ),
        ),
      );
      expect(new Set(answers.map(({ value }) => value)).size).toBe(1);
      expect(await effects(run.runId)).toBe(1);
      expect(await recordsOf(run)).toEqual(["a"]);
    });

    test("two steps that sell two skus in opposite orders both commit in the end", async () => {
      const skus = [await stocked(10), await stocked(10)];
      const sell = async (order: readonly string[]) => {
        const own = openDatabase();
        const [on, stock] = [sqlJournal(own), sqlInventory(own)];
        const run = await running(on);
        await transact(
          run,
          "sell",
          async (tx) => {
            for (const sku of order) {
              const operationId = `${run.runId}/${sku}`;
              await stock.within(tx).decrement({ sku, quantity: 1, operationId });
              await pause(30);
            }
            return record("sell");
          },
          { on },
        );
        expect(await recordsOf(run)).toEqual(["sell"]);
      };
      await Promise.all([sell(skus), sell([...skus].reverse()), sell(skus)]);
      for (const sku of skus) {
        expect(await inventory.get(sku)).toMatchObject({ onHand: 7, sold: 3 });
        expect(await inventory.history(sku)).toHaveLength(4);
      }
    });

    test("the body cannot end the transaction, nor use it afterwards", async () => {
      const run = await running(journal);
      const id = run.runId;
      let kept: Opened | undefined;
      const bodies: readonly ((tx: Opened) => Promise<unknown>)[] = [
        (tx) => (tx as Transaction).commit([effect(id)]),
        ...[
          sql`COMMIT`,
          sql` /* a */ commit`,
          sql`/*!40000 COMMIT */`,
          sql`ROLLBACK`,
          sql`BEGIN`,
          sql`START TRANSACTION`,
          sql`SET autocommit = 1`,
          sql`CREATE TABLE other (a INTEGER)`,
          sql`TRUNCATE effect`,
          sql`DELETE FROM effect; COMMIT`,
        ].map((statement) => async (tx: Opened) => {
          kept = tx;
          await tx.batch([effect(id), statement]);
        }),
      ];
      for (const body of bodies) {
        const trying = transact(run, "a", async (tx) => {
          await tx.batch([effect(id)]);
          await body(tx);
          return record("a");
        });
        await expect(trying).rejects.toThrow(TypeError);
      }
      await expect(kept?.batch([effect(id)])).rejects.toMatchObject({ code: "STORE_REFUSED" });
      expect(await effects(id)).toBe(0);
      // A failure that the body has swallowed rejects the step all the same.
      const swallowing = transact(run, "a", async (tx) => {
        await tx.batch([effect(id)]);
        await tx.batch([sql`SELECT * FROM no_such_table`]).catch(() => {});
        return record("a");
      });
      await expect(swallowing).rejects.toMatchObject({
        code: "TRANSACTION_REFUSED",
        cause: { code: "STORE_REFUSED" },
      });
      let times = 0;
      const doubling = transact(run, "a", async (tx) => {
        times += 1;
        const once = sql`INSERT INTO once (name) VALUES (${id})`;
        await tx.batch([effect(id), once, once]).catch(() => {});
        return record("a");
      });
      await expect(doubling).rejects.toMatchObject({
        code: "TRANSACTION_REFUSED",
        cause: { name: "DuplicateKeyError" },
      });
      expect(times).toBe(1);
      expect([await effects(id), await recordsOf(run)]).toEqual([0, []]);
      await transact(run, "a", async (tx) => {
        void tx.batch([effect(id)]);
        const text = "a;b";
        await tx.batch([
          sql` -- Which are there?
            SELECT ';' AS a, name FROM effect WHERE name = ${text}`,
        ]);
        return record("a");
      });
      expect(await effects(id)).toBe(1);
    });

    test("a step that its caller aborts leaves no changes and no locks", async () => {
      const run = await running(journal);
      const sku = await stocked(5);
      for (const reason of [new Error("enough"), "enough", null]) {
        const caller = new AbortController();
        const stuck = Promise.withResolvers<never>();
        const selling = transact(
          run,
          "sell",
          async (tx) => {
            const change = { sku, quantity: 1, operationId: `${sku}/${reason}` };
            await inventory.within(tx).decrement(change);
            caller.abort(reason);
            return stuck.promise;
          },
          { signal: caller.signal },
        );
        expect(await selling.catch((error: unknown) => ({ error }))).toEqual({ error: reason });
        await inventory.restock({ sku, quantity: 1, operationId: `${sku}/${reason}` });
      }
      expect(await inventory.get(sku)).toMatchObject({ onHand: 8, sold: 0 });
      if (locksRows()) {
        const caller = new AbortController();
        const asking = transact(
          run,
          "sell",
          async (tx) => {
            setTimeout(() => caller.abort("enough"), 100);
            await tx.batch([effect(run.runId), sql`SELECT ${sleep()}(0.5)`]);
            return record("sell");
          },
          { signal: caller.signal },
        );
        await expect(asking).rejects.toBe("enough");
      }
      expect(await recordsOf(run)).toEqual([]);
      expect(await effects(run.runId)).toBe(0);
    });

    test("each call takes one round trip, and a transaction two more than its body", async () => {
      const points: string[] = [];
      const counted = injectFaults(openDatabase(), (point) => {
        if (point.endsWith(":before")) points.push(point.slice(0, -7));
      });
      const own = sqlJournal(counted);
      const cost = async <T>(call: () => Promise<T>) => {
        points.length = 0;
        await call();
        return points.join(" ");
      };
      const claim = claimOf(newRunId());
      expect(await cost(() => own.claim(claim))).toBe("batch");
      expect(await cost(() => own.claim(claim))).toBe("batch");
      const { epoch } = (await journal.show(claim.runId)) ?? { epoch: 0n };
      const run = { runId: claim.runId, epoch };
      expect(await cost(() => own.append(run, record("a")))).toBe("batch");
      expect(await cost(() => own.append(run, record("b")))).toBe("batch");
      expect(await cost(() => own.renew(run, 1_000))).toBe("batch");
      await using lock = await locks.lock(run.runId, { ttl: 20_000, wait: 0 });
      const fences = [lock.fence];
      const transacting = () => transact(run, "c", leaving(run.runId, "c"), { fences, on: own });
      expect(await cost(transacting)).toBe("tx.batch tx.batch tx.commit");
      expect(await cost(transacting)).toBe("tx.batch");
      const parking = { reason: "sleep", wakeIn: 0, signalsSeen: 0 } as const;
      expect(await cost(() => own.park(run, parking))).toBe("batch");
      expect(await cost(() => own.take(claim))).toBe("batch");
      const next = { ...run, epoch: epoch + 1n };
      const signal = { name: "a", dedupeId: "1", payload: "" };
      expect(await cost(() => own.signal(run.runId, signal))).toBe("batch");
      expect(await cost(() => own.finish(next, DONE))).toBe("batch");
    });

    test("a late claim does not take a run that its holder has parked or continued already", async () => {
      const parking = { reason: "sleep", wakeIn: 0, signalsSeen: 0 } as const;
      const next = { part: 1, input: '"next"', received: [] };
      const letGo = {
        park: (own: Journal, run: RunKey) => own.park(run, parking),
        continue: (own: Journal, run: RunKey) => own.continueAsNew(run, next),
      };
      const cases = (["claim", "take"] as const).flatMap((call) =>
        Object.values(letGo).map((end) => [call, end] as const),
      );
      for (const [call, end] of cases) {
        const begun = await running(journal);
        await journal.park(begun, { reason: "sleep", wakeIn: 0, signalsSeen: 0 });
        const { database: wire, settled } = delaying(openDatabase(), 1);
        const own = sqlJournal(wire);
        const answer = await own[call](begun.claim);
        expect(answer).toMatchObject({ kind: "claimed", epoch: begun.epoch + 1n });
        const run = { runId: begun.runId, epoch: begun.epoch + 1n };
        await end(own, run);
        await settled();
        expect(await journal.show(run.runId)).toMatchObject({ ...run, status: "parked" });
      }
    });

    describeLostMessages({
      journal: () => journal,
      inventory: () => inventory,
      locks: () => locks,
      ...{ openDatabase, transact, effect, effects, leaving, stocked, recordsOf },
    });
  });
}
