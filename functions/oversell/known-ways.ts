import { sleep } from "../../core/lock/abort.ts";
import type { OrderAnswer } from "./messages.ts";
import type { Sale, SetnxLock, StockCounter, StockRow } from "./shop.ts";
import { monotonicNow, type Trace } from "./trace.ts";

/** Ways to lock and to sell that are widely known, and that only some stores have. */

/** The pause of a waiter between two attempts, in milliseconds: random, so that waiters spread. */
export function pollPause(): number {
  return 5 + Math.random() * 10;
}

/** A lock whose owner keeps it without an expiry for so many ttls is never released: an owner sets the expiry at once. */
const STUCK_TTLS = 3;

export interface SetnxOptions {
  readonly owner: string;
  readonly ttlMillis: number;
  readonly waitMillis: number;

  /** Called when the lock is taken and has no expiry yet. */
  readonly beforeExpire: () => Promise<void>;
}

/** Takes the lock with SETNX, and then gives it an expiry. `stuck`: another owner has the lock for ever. */
export async function setnxThenExpire(
  lock: SetnxLock,
  { owner, ttlMillis, waitMillis, beforeExpire }: SetnxOptions,
): Promise<"held" | "busy" | "stuck"> {
  const giveUpAt = monotonicNow() + waitMillis;
  let eternal: { readonly owner: string; readonly since: number } | undefined;
  while (!(await lock.setnx(owner))) {
    const now = monotonicNow();
    const holder = await lock.ownerWithoutExpiry();
    if (holder === undefined) eternal = undefined;
    else if (holder !== eternal?.owner) eternal = { owner: holder, since: now };
    else if (now - eternal.since > STUCK_TTLS * ttlMillis) return "stuck";
    if (now > giveUpAt && eternal === undefined) return "busy";
    await sleep(pollPause());
  }
  await beforeExpire();
  await lock.expire(ttlMillis);
  return "held";
}

/** Takes a unit with DECR, puts it back if none was left, and records the sale after the work. */
export async function decrAndTest(
  counter: StockCounter,
  sale: Sale,
  trace: Trace,
  work: () => Promise<void>,
): Promise<OrderAnswer> {
  const left = await trace.request(
    () => counter.decr(),
    (stock) => ({ type: "takes", stock }),
  );
  if (left < 0) {
    await counter.incr();
    return "sold-out";
  }
  await work();
  await trace.request(
    () => counter.record(sale, left),
    () => ({ type: "sold" }),
  );
  return "sold";
}

/** Writes the stock unless another sale has changed its version since the read. */
export async function sellByVersion(
  row: StockRow,
  sale: Sale,
  trace: Trace,
  work: () => Promise<void>,
): Promise<OrderAnswer> {
  const { stock, version } = await trace.request(
    () => row.readVersion(),
    ({ stock }) => ({ type: "reads", stock }),
  );
  if (stock < 1) return "sold-out";
  await work();
  const written = await trace.request(
    () => row.writeVersion(sale, stock - 1, version),
    (type) => ({ type }),
  );
  return written === "replayed" ? "sold" : written;
}

/** Sells under the lock of the stock's row. Rejects with the store's error if the row is not free in time. */
export async function sellUnderRowLock(
  row: StockRow,
  sale: Sale,
  trace: Trace,
  work: () => Promise<void>,
): Promise<OrderAnswer> {
  let sentAt = trace.now();
  const result = await row.sellUnderRowLock(sale, async (stock) => {
    trace.add("reads", { sentAt, stock });
    if (stock > 0) await work();
    sentAt = trace.now();
  });
  trace.add(result, { sentAt });
  return result === "replayed" ? "sold" : result;
}
