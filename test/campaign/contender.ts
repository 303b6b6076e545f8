import { setTimeout as sleep } from "node:timers/promises";
import { type StockResult, stockLock } from "../../core/inventory/inventory.ts";
import { LockLostError } from "../../core/lock/errors.ts";
import type { Fence } from "../../core/lock/fence.ts";
import type { Lock } from "../../core/lock/lock.ts";
import { open } from "../../infra/open.ts";
import { Random } from "../simulation/random.ts";
import { heldFor } from "../support/held-for.ts";
import { type HistoryEvent, now, type Operation, record, wallClock } from "./history.ts";
import { askOracle } from "./oracle.ts";
import { saleRuns } from "./sale-workflow.ts";

export interface ContenderOptions {
  /** The store's URL. */
  readonly url: string;

  /** The oracle's URL. */
  readonly oracle: string;

  /** The ttl of locks, in milliseconds. */
  readonly ttl: number;

  /** Unique per process: its clients have names that begin with it. */
  readonly process: string;
  readonly seed: readonly number[];

  /** The skus that it works on, under their locks. */
  readonly skus: readonly string[];

  /** The turns at a time. */
  readonly lanes: number;

  /** The most units of a sale, and the longest pause after a turn in milliseconds. */
  readonly units: number;
  readonly pause: number;

  /** Whether a turn may last for as long as its lock, and some turns are runs of a workflow. */
  readonly isSlow: boolean;
}

/**
 * contender OPTIONS: makes read-modify-writes and sales under locks and fences until TERM, then closes its store. Prints
 * its history.
 */
const options: ContenderOptions = JSON.parse(process.argv[2] ?? "");
const { url, oracle, ttl, skus, units, pause, isSlow } = options;
/** The least step of a clock that counts, and the time between two readings, in milliseconds. */
const LEAST_STEP = 20;
const READ_EVERY = 100;
let isEnding = false;
process.once("SIGTERM", () => {
  isEnding = true;
});
const opened = await open(url);
const { locks } = opened;
const inventory = opened.has("inventory") ? opened.inventory : undefined;
const sellOnce = isSlow
  ? saleRuns(opened, { ttl, client: `${options.process}.journal`, record })
  : undefined;

watchClock();
await Promise.all(Array.from({ length: options.lanes }, (_, at) => work(at)));
await opened.close();

/** Records each step of the wall clock. */
function watchClock(): void {
  let last = wallClock();
  const read = () => {
    const value = wallClock();
    if (Math.abs(value - last) < LEAST_STEP) return;
    last = value;
    record({ client: "observer.clock", operation: "clock", type: "ok", value });
  };
  setInterval(read, READ_EVERY).unref();
}

interface Lane {
  readonly client: string;
  readonly random: Random;
}

async function work(at: number): Promise<void> {
  const lane = {
    client: `${options.process}.${at}`,
    random: new Random(...options.seed, at),
  };
  for (let count = 0; !isEnding; count += 1) {
    const sku = lane.random.pick(skus);
    if (sellOnce && lane.random.chance(0.25)) await run(lane, sku, count, sellOnce);
    else await turn(lane, sku, count);
    await sleep(lane.random.below(pause));
  }
}

async function turn(lane: Lane, sku: string, count: number): Promise<void> {
  const { client, random } = lane;
  const name = stockLock(sku);
  const lock = await call(
    { client, operation: "acquire", name },
    () => acquire(name, random),
    (acquired) => (acquired ? { token: String(acquired.fence) } : { type: "fail", code: "BUSY" }),
  );
  if (!lock) return;
  const at = { client, name, token: String(lock.fence) };
  lock.signal.addEventListener("abort", () => {
    const { reason } = lock.signal;
    if (!(reason instanceof LockLostError) || reason.why === "released") return;
    record({ ...at, operation: "hold", type: "fail", code: reason.why });
  });
  const value = await use("claim", at);
  if (isSlow) await look(lock, at, random);
  // A late holder writes as well: the fence must refuse the write.
  if (value !== undefined) await use("write", at, value + 1);
  await sell(lane, sku, lock.fence, count);
  await call(
    { ...at, operation: "release" },
    () => lock.unlock(),
    (answer) => (answer === "released" ? {} : { type: "fail", code: answer }),
  );
}

/** Acquires the lock: one attempt in four does not wait, one lock in four is not renewed. */
function acquire(name: string, random: Random): Promise<Lock | undefined> {
  const renew = random.chance(0.75);
  return random.chance(0.25)
    ? locks.tryLock(name, { ttl, renew })
    : locks.lock(name, { ttl, renew, wait: 10_000 });
}

type Use = Required<Pick<HistoryEvent, "client" | "name" | "token">>;

/** Holds the lock: mostly for a short time, for many turns; rarely longer than the rest of its ttl. */
async function look(lock: Lock, at: Use, random: Random): Promise<void> {
  for (let left = random.below(4); left > 0; left -= 1) {
    await sleep(random.float() ** 4 * ttl);
    const time = now();
    const left = heldFor(lock, ttl);
    if (left === undefined) return;
    record({ ...at, operation: "hold", type: "ok", time, until: time + 1_000 * left });
  }
}

/** Claims the register, or writes the value. Resolves to undefined if the fence is refused. */
async function use(
  operation: "claim" | "write",
  at: Use,
  value?: number,
): Promise<number | undefined> {
  const answer = await call(
    { ...at, operation, ...(value !== undefined && { value }) },
    () => askOracle(oracle, { ...at, ...(value !== undefined && { value }) }),
    (found) => (found.value === undefined ? { type: "fail", code: "FENCED_OUT" } : found),
  );
  return answer?.value;
}

/** Sells units. Repeats one sale in twenty, and each one that failed: a sale that was applied has the same answer again. */
async function sell({ client, random }: Lane, sku: string, fence: Fence, count: number) {
  const id = `${client}-${count}`;
  const quantity = 1 + random.below(units);
  const about = { client, name: stockLock(sku), token: String(fence), id, units: quantity };
  const once = () =>
    call(
      { ...about, operation: "sale" },
      () => decrement(sku, id, quantity, fence),
      (answer) => answer && { remaining: answer.remaining, replayed: answer.replayed },
    );
  if (!inventory) return;
  if (!(await once()) || random.chance(0.05)) await once();
}

/** Sells units in one transaction, each under an operation id of its own, and resolves to the answer for the last one. */
async function decrement(
  sku: string,
  id: string,
  quantity: number,
  fence: Fence,
): Promise<Pick<StockResult, "remaining" | "replayed"> | undefined> {
  const orders = Array.from({ length: quantity }, (_, i) => ({
    operationId: `${id}/${i}`,
    quantity: 1,
  }));
  if (quantity === 1) return inventory?.decrement({ sku, operationId: `${id}/0`, quantity, fence });
  return (await inventory?.decrementMany({ sku, orders, fence }))?.at(-1);
}

async function run(
  { client }: Lane,
  sku: string,
  count: number,
  sellOnceIn: NonNullable<typeof sellOnce>,
): Promise<void> {
  const id = `${client}-run-${count}`;
  await call(
    { client, operation: "run", name: stockLock(sku), id },
    () => sellOnceIn({ id, sku }, AbortSignal.timeout(10_000)),
    (isCompleted) => (isCompleted ? {} : { type: "unknown" }),
  );
}

/**
 * Records a call and its end. Resolves to undefined if the call rejects with a code, as faults cause it. Any other error
 * ends this process: a violation.
 */
async function call<T>(
  about: Omit<HistoryEvent, "time" | "type"> & { readonly operation: Operation },
  body: () => Promise<T>,
  end: (result: T) => Partial<HistoryEvent> | undefined,
): Promise<T | undefined> {
  record({ ...about, type: "invoke" });
  try {
    const result = await body();
    record({ ...about, type: "ok", ...end(result) });
    return result;
  } catch (error) {
    const code = codeOf(error);
    // A run goes on whose journal did not answer.
    const isUnknown = code === "UNKNOWN_OUTCOME" || about.operation === "run";
    record({ ...about, type: isUnknown ? "unknown" : "fail", code });
    // A pause, or a store that fails at once would be called in a busy loop.
    await sleep(20);
    return undefined;
  }
}

function codeOf(error: unknown): string {
  const { code, name } = error as { code?: unknown; name?: string };
  if (name === "TimeoutError") return "TIMEOUT";
  if (typeof code !== "string" || !/^[A-Z_]+$/.test(code)) throw error;
  return code;
}
