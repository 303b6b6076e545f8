import { InventoryError, stockLock } from "../../core/inventory/inventory.ts";
import { sleep } from "../../core/lock/abort.ts";
import { checkSignal, checkWhole, LONGEST_SPAN } from "../../core/lock/checks.ts";
import { type Duration, toMillis } from "../../core/lock/duration.ts";
import { hasCode } from "../../core/lock/errors.ts";
import type { LockStore } from "../../core/lock/lock.ts";
import { checkOptionNames, type OptionNames } from "../../core/lock/options.ts";
import { usualTtl } from "../../core/lock/request.ts";
import { elapsedSince, instant, jittered, type Millis } from "../../core/lock/time.ts";
import { answerGroup, type GroupOptions } from "./group.ts";
import { type OpenSku, type OrderStatus, openSkus } from "./orders.ts";

export interface FulfilOptions extends Omit<GroupOptions, "group"> {
  readonly locks: Pick<LockStore, "tryLock" | "traits">;

  /** The number of concurrent skus. Default 4. */
  readonly concurrency?: number;

  /** The most orders of a sku per lock and transaction. Default 500, at most 1,000. */
  readonly group?: number;

  /** The time after which the lock of a killed process expires. Default 10 s. */
  readonly ttl?: Duration;

  /** Waits for more orders instead of ending when no order is open. */
  readonly follow?: boolean;

  /** Stops gracefully after the running groups. */
  readonly signal?: AbortSignal;

  /** Called after each poll with the number of open orders. It must not throw. */
  readonly onPoll?: (open: number) => void;
}

const OPTIONS = {
  database: true,
  inventory: true,
  locks: true,
  concurrency: true,
  group: true,
  ttl: true,
  follow: true,
  signal: true,
  abort: true,
  onPoll: true,
} satisfies OptionNames<FulfilOptions>;

/** What one call has answered. It does not count a group whose answer was lost: `countOrders` tells what became of all. */
export interface FulfilReport extends Readonly<Record<OrderStatus, number>> {
  /** The number of groups; each took one lock and one transaction. */
  readonly groups: number;

  /** The number of times that a sku was skipped because another process had its lock. */
  readonly passedOver: number;
}

/** The pause while other processes have all open skus, and the longest pause during an outage. */
const MIN_PAUSE: Millis = 50;
const MAX_PAUSE: Millis = 2_000;

/** Without `follow`, the outage of the store after which fulfilment fails. */
const MAX_OUTAGE: Millis = 30_000;

/** A late holder's fence is refused once. If so many are, the lock store has lost its fences. */
const MOST_REFUSALS = 5;

/**
 * Fulfils open orders, in groups per sku: under the sku's lock, in one transaction that claims the fence, sells, and writes
 * the status of the orders. Any number of processes may run at once and may be killed: an order gets both its status and
 * its units, or neither. A sku whose lock another process has is skipped. Rejects with FENCED_OUT when the fences of a
 * sku's new locks are refused again and again.
 */
export async function fulfil(options: FulfilOptions): Promise<FulfilReport> {
  const { database, inventory, locks }: Partial<FulfilOptions> = options ?? {};
  if (!database?.transaction || !inventory?.within || !locks?.tryLock) {
    throw new TypeError("fulfil needs a database, its inventory and locks, such as { ...shop }");
  }
  checkOptionNames("fulfil", options, OPTIONS);
  const { concurrency = 4, group = 500 } = options;
  const ttl = toMillis("ttl", options.ttl ?? usualTtl(locks), locks.traits.minTtl, LONGEST_SPAN);
  checkWhole("concurrency", concurrency, 1, 100);
  checkWhole("group", group, 1, 1_000);
  checkSignal(options.signal);
  checkSignal(options.abort);
  const batch = new Batch({ ...options, concurrency, group, ttl });
  await batch.run();
  return batch.report;
}

type Checked = FulfilOptions & Required<Pick<FulfilOptions, "concurrency" | "group" | "ttl">>;

class Batch {
  readonly report = {
    ...{ fulfilled: 0, "sold-out": 0, "unknown-sku": 0, refused: 0 },
    groups: 0,
    passedOver: 0,
  };
  readonly #options: Checked;

  /** How many fences of each sku were refused one after the other, although their locks were held. */
  readonly #refusals = new Map<string, number>();

  /** The time of the last answer of the stores. A pass over all skus may take longer than `MAX_OUTAGE`. */
  #lastAnswerAt = instant();

  constructor(options: Checked) {
    this.#options = options;
  }

  async run(): Promise<void> {
    let pause = MIN_PAUSE;
    while (!this.#isOver) {
      try {
        const open = await this.#poll();
        if (open.length === 0 && !this.#options.follow) return;
        if (await this.#pass(open)) pause = 0;
        this.#lastAnswerAt = instant();
      } catch (error) {
        if (this.#options.abort?.aborted) return;
        const isFinal = !this.#options.follow && elapsedSince(this.#lastAnswerAt) > MAX_OUTAGE;
        if (isFinal || !hasCode(error, "STORE_UNAVAILABLE", "UNKNOWN_OUTCOME")) throw error;
      }
      await sleep(jittered(pause), this.#options.signal).catch(() => {});
      pause = Math.min(Math.max(2 * pause, MIN_PAUSE), MAX_PAUSE);
    }
  }

  get #isOver(): boolean {
    const { signal, abort } = this.#options;
    return signal?.aborted === true || abort?.aborted === true;
  }

  /** Returns the open skus in random order, so that processes seldom take the same sku. */
  async #poll(): Promise<OpenSku[]> {
    const { database, abort, onPoll } = this.#options;
    const open = await openSkus(database, abort);
    onPoll?.(open.reduce((sum, { orders }) => sum + orders, 0));
    return open
      .map((one) => ({ one, rank: Math.random() }))
      .sort((a, b) => a.rank - b.rank)
      .map(({ one }) => one);
  }

  /** Tries all skus once. Resolves to false when other processes had all of their locks. */
  async #pass(open: readonly OpenSku[]): Promise<boolean> {
    const left = [...open];
    let served = false;
    const serveSome = async () => {
      for (let next = left.pop(); next && !this.#isOver; next = left.pop()) {
        if (await this.#serve(next.sku)) served = true;
      }
    };
    const results = await Promise.allSettled(
      Array.from({ length: this.#options.concurrency }, serveSome),
    );
    for (const result of results) if (result.status === "rejected") throw result.reason;
    return served;
  }

  /** Fulfils one group. Resolves to false when another process has the lock. */
  async #serve(sku: string): Promise<boolean> {
    const { locks, ttl } = this.#options;
    const lock = await locks.tryLock(stockLock(sku), { ttl });
    if (lock === undefined) {
      this.report.passedOver += 1;
      return false;
    }
    try {
      this.#count(await answerGroup(this.#options, sku, lock.fence));
      this.#lastAnswerAt = instant();
      this.#refusals.delete(sku);
      return true;
    } catch (error) {
      if (hasCode(error, "FENCED_OUT") && !lock.signal.aborted) this.#countRefusal(sku, error);
      // A later holder has the lock, or another sale has just used the order's id: the next poll shows which.
      if (hasCode(error, "FENCED_OUT") || isConflict(error)) return false;
      throw error;
    } finally {
      await lock[Symbol.asyncDispose]();
    }
  }

  /** Throws the error, which advises to raise the generation, when the fences of all new locks are refused. */
  #countRefusal(sku: string, error: unknown): void {
    const refusals = (this.#refusals.get(sku) ?? 0) + 1;
    this.#refusals.set(sku, refusals);
    if (refusals >= MOST_REFUSALS) throw error;
  }

  #count(answers: ReadonlyMap<string, OrderStatus>): void {
    if (answers.size > 0) this.report.groups += 1;
    for (const answer of answers.values()) this.report[answer] += 1;
  }
}

function isConflict(error: unknown): boolean {
  return error instanceof InventoryError && error.code === "OPERATION_CONFLICT";
}
