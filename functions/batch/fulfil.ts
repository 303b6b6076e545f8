import { DuplicateKeyError } from "../../core/database/sql.ts";
import { stockLock } from "../../core/inventory/inventory.ts";
import { sleep } from "../../core/lock/abort.ts";
import { checkSpan, checkWhole } from "../../core/lock/checks.ts";
import { hasCode } from "../../core/lock/errors.ts";
import type { LockStore } from "../../core/lock/lock.ts";
import { elapsedSince, instant, type Millis } from "../../core/lock/time.ts";
import { answerGroup, type GroupOptions } from "./group.ts";
import { type OpenSku, type OrderAnswer, openSkus } from "./orders.ts";

export interface FulfilOptions extends Omit<GroupOptions, "group"> {
  readonly locks: Pick<LockStore, "tryLock" | "traits">;

  /** How many skus at a time. Default 4. */
  readonly concurrency?: number;

  /** How many orders of a sku share a lock and a transaction. Default 500, at most 1,000. */
  readonly group?: number;

  /** How long the lock of a killed process stays in the way of its sku. Default 10 s. */
  readonly ttl?: Millis;

  /** Waits for more orders instead of ending when none is open. */
  readonly follow?: boolean;

  /** Ends it when the groups under way are done. */
  readonly signal?: AbortSignal;

  /** Told after each look how many orders are open. It must not throw. */
  readonly onLook?: (open: number) => void;
}

export interface FulfilReport extends Readonly<Record<OrderAnswer, number>> {
  /** Each of them was one lock and one transaction. */
  readonly groups: number;

  /** How often a sku was passed over because somebody else was at it. */
  readonly passedOver: number;
}

/** The pause when all that is open is with others, and the longest one while the store is away. */
const PAUSE: Millis = 50;
const LONGEST_PAUSE: Millis = 2_000;

/** Without `follow`, how long the store may be away before it is given up. */
const PATIENCE: Millis = 30_000;

/**
 * Answers open orders, those for one sku together: under the sku's lock, and in one transaction that claims the
 * fence, sells, and writes the answers down. Any number of processes may do it at once, and be killed: an order
 * has its answer and its units, or neither. A sku that somebody else is at is passed over.
 */
export async function fulfil(options: FulfilOptions): Promise<FulfilReport> {
  const { concurrency = 4, group = 500, locks } = options;
  const { ttl = Math.max(10_000, locks.traits.minTtl) } = options;
  checkWhole("concurrency", concurrency, 1, 100);
  checkWhole("group", group, 1, 1_000);
  checkSpan("ttl", ttl, locks.traits.minTtl);
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

  /** When the stores have answered last. Going through all skus may take longer than they may be away. */
  #answeredAt = instant();

  constructor(options: Checked) {
    this.#options = options;
  }

  async run(): Promise<void> {
    let pause = PAUSE;
    while (!this.#isOver) {
      try {
        const open = await this.#look();
        if (open.length === 0 && !this.#options.follow) return;
        if (await this.#pass(open)) pause = 0;
        this.#answeredAt = instant();
      } catch (error) {
        if (this.#options.abort?.aborted) return;
        const isFinal = !this.#options.follow && elapsedSince(this.#answeredAt) > PATIENCE;
        if (isFinal || !hasCode(error, "STORE_UNAVAILABLE", "UNKNOWN_OUTCOME")) throw error;
      }
      await sleep(pause * (0.5 + Math.random()), this.#options.signal).catch(() => {});
      pause = Math.min(Math.max(2 * pause, PAUSE), LONGEST_PAUSE);
    }
  }

  get #isOver(): boolean {
    const { signal, abort } = this.#options;
    return signal?.aborted === true || abort?.aborted === true;
  }

  /** In an order of its own, so that processes seldom want the same sku. */
  async #look(): Promise<OpenSku[]> {
    const { database, abort, onLook } = this.#options;
    const open = await openSkus(database, abort);
    onLook?.(open.reduce((sum, { orders }) => sum + orders, 0));
    return open
      .map((one) => ({ one, place: Math.random() }))
      .sort((a, b) => a.place - b.place)
      .map(({ one }) => one);
  }

  /** Goes through all of the skus. False: others were at each of them. */
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

  /** One group. False: somebody else is at it. */
  async #serve(sku: string): Promise<boolean> {
    const { locks, ttl } = this.#options;
    const lock = await locks.tryLock(stockLock(sku), { ttl });
    if (lock === undefined) {
      this.report.passedOver += 1;
      return false;
    }
    try {
      this.#count(await answerGroup(this.#options, sku, lock.fence));
      this.#answeredAt = instant();
      return true;
    } catch (error) {
      // A later holder has come, or an order's id has just been used for another sku: the next look tells.
      if (hasCode(error, "FENCED_OUT") || error instanceof DuplicateKeyError) return false;
      throw error;
    } finally {
      await lock[Symbol.asyncDispose]();
    }
  }

  #count(answers: ReadonlyMap<string, OrderAnswer>): void {
    if (answers.size > 0) this.report.groups += 1;
    for (const answer of answers.values()) this.report[answer] += 1;
  }
}
