import { describe, expect, test } from "vitest";
import type { Database, Sql } from "../../core/database/sql.ts";
import { stockLock } from "../../core/inventory/inventory.ts";
import type { Journal } from "../../core/journal/journal.ts";
import type { NewRecord, StepRecord } from "../../core/journal/records.ts";
import type { RunKey } from "../../core/journal/runs.ts";
import type { Fence } from "../../core/lock/fence.ts";
import type { LockStore } from "../../core/lock/lock.ts";
import { sqlInventory } from "../../core/stores/sql/inventory/index.ts";
import { sqlJournal } from "../../core/stores/sql/journal/index.ts";
import type { TransactionalInventory } from "../../core/stores/transactional-inventory.ts";
import { delaying, type Lossy, losing } from "../support/lossy.ts";
import { claimed, claimOf, DONE, newRunId, record } from "../support/runs.ts";
import type { Opened } from "../support/stock-within.ts";

/** What the tests of transactions have in common. */
export interface TransactionFixture {
  journal(): Journal;
  inventory(): TransactionalInventory;
  locks(): LockStore;

  /** Opens another client of the database, which is closed after the tests. */
  openDatabase(): Database;

  transact(
    run: RunKey,
    key: string,
    body: (tx: Opened) => Promise<NewRecord>,
    options?: TransactOptions,
  ): Promise<StepRecord>;

  /** Leaves an effect of this id behind, which `effects` counts. */
  effect(id: string): Sql;
  effects(id: string): Promise<number>;

  /** A body that leaves an effect behind. */
  leaving(id: string, key: string): (tx: Opened) => Promise<NewRecord>;

  /** Makes a sku with units on hand. */
  stocked(quantity: number): Promise<string>;

  /** The keys of the run's records. */
  recordsOf(run: RunKey): Promise<readonly string[] | undefined>;
}

export interface TransactOptions {
  readonly fences?: readonly Fence[];
  readonly signal?: AbortSignal;
  readonly on?: Journal;
}

/** Tests that each write of a run is committed once, whichever message is lost or late. */
export function describeLostMessages(fixture: TransactionFixture): void {
  const { openDatabase, transact, effect, effects, leaving, stocked, recordsOf } = fixture;

  describe("a run with a lost message", () => {
    /** A child that sells, and a parent that waits for it: together, every kind of write. */
    const scenario = async ({ database: on, settled }: Lossy): Promise<void> => {
      const [own, stock] = [sqlJournal(on), sqlInventory(on)];
      const sku = await stocked(5);
      const parentClaim = claimOf(newRunId());
      const parent = { ...parentClaim, ...(await claimed(own, parentClaim)) };
      const childClaim = claimOf(newRunId(), {
        parent: { runId: parent.runId, signal: "child" },
      });
      const child = { ...childClaim, ...(await claimed(own, childClaim)) };
      await own.append(parent, record("child", { kind: "child" }));
      const parking = { reason: "child", wakeIn: Number.POSITIVE_INFINITY, signalsSeen: 0 };
      await own.park(parent, parking as Parameters<Journal["park"]>[1]);
      await using lock = await fixture.locks().lock(stockLock(sku), { ttl: 20_000, wait: 0 });
      const { fence } = lock;
      const sold = await transact(
        child,
        "sell",
        async (tx) => {
          const operationId = `${child.runId}/sell`;
          const change = { sku, quantity: 2, operationId, fence };
          const { remaining } = await stock.within(tx).decrement(change);
          await tx.batch([effect(child.runId)]);
          return record("sell", { value: `${remaining}` });
        },
        { fences: [fence], on: own },
      );
      expect(sold.value).toBe("3");
      // Without a fence, the record's key alone prevents a second commit.
      await transact(child, "more", leaving(child.runId, "more"), { on: own });
      const written = await own.append(child, record("last"));
      expect(written.epoch).toBe(child.epoch);
      expect(await own.renew(child, 30_000)).toBeDefined();
      await own.finish(child, DONE);
      const longClaim = claimOf(newRunId());
      const long = { ...longClaim, ...(await claimed(own, longClaim)) };
      await own.append(long, record("a", { value: "x".repeat(10_000) }));
      const next = { part: 1, input: '"next"', received: [] };
      expect(await own.continueAsNew(long, next)).toBe("continued");
      const second = await claimed(own, longClaim);
      expect(second).toMatchObject({ part: 2, input: next.input, epoch: long.epoch + 1n });
      expect(second.records).toEqual([]);
      const woken = await claimed(own, parentClaim);
      expect(woken).toMatchObject({ crashes: 0, records: [{ key: "child" }] });
      expect(woken.signals).toMatchObject([{ name: "child", dedupeId: child.runId }]);
      expect(await own.take(parentClaim)).toMatchObject({ kind: "busy" });
      // A late request of the refused call would take the run once it is due.
      await settled();
      expect(await own.cancel(parent.runId)).toBe("requested");
      const signal = { name: "a", dedupeId: "1", payload: "" };
      expect(["delivered", "duplicate"]).toContain(await own.signal(parent.runId, signal));
      expect(await own.finish({ ...parent, epoch: woken.epoch }, DONE)).toBe("cancelled");
      const { epoch } = await claimed(own, parentClaim);
      await own.finish({ ...parent, epoch }, { ...DONE, status: "cancelled" });
      ended.push({ sku, parent, child });
    };

    interface EndedRuns {
      readonly sku: string;
      readonly parent: RunKey;
      readonly child: RunKey;
    }
    const ended: EndedRuns[] = [];

    const expectOnce = async ({ sku, parent, child }: EndedRuns): Promise<void> => {
      expect(await effects(child.runId)).toBe(2);
      expect(await fixture.inventory().get(sku)).toMatchObject({ onHand: 3, sold: 2 });
      expect(await fixture.inventory().history(sku)).toHaveLength(2);
      const shown = await fixture.journal().show(child.runId);
      expect(shown).toMatchObject({ status: "completed", epoch: child.epoch, crashes: 0 });
      expect(await recordsOf(child)).toEqual(["sell", "more", "last"]);
      const told = await fixture.journal().show(parent.runId);
      expect(told).toMatchObject({ status: "cancelled", epoch: parent.epoch + 2n });
      expect(told?.signals.map((signal) => signal.name)).toEqual(["child", "a"]);
    };

    const exhaust = async (lossy: (database: Database, nth: number) => Lossy) => {
      const own = openDatabase();
      for (let nth = 1; ; nth += 1) {
        const fault = lossy(own, nth);
        await scenario(fault);
        await fault.settled();
        await expectOnce(ended.at(-1) as EndedRuns);
        if (!fault.isOver()) return nth - 1;
      }
    };

    test("commits each write once when any request or answer is lost", async () => {
      expect(await exhaust(losing)).toBeGreaterThan(30);
    });

    test("commits each write once when any request arrives late", async () => {
      expect(await exhaust(delaying)).toBeGreaterThan(10);
    });
  });
}
