import { setTimeout as sleep } from "node:timers/promises";
import { stockLock } from "../../core/inventory/inventory.ts";
import type { Fence } from "../../core/lock/fence.ts";
import type { Lock, LockStore } from "../../core/lock/lock.ts";
import { isHeld } from "../../core/lock/lock-handle.ts";
import { open } from "../../infra/open.ts";
import { now, sendReport } from "./oracle.ts";

/** A line of JSON on a contender's standard output. */
export type ContenderReport =
  | { readonly error: string; readonly call: string }
  | { readonly sale: string; readonly outcome: string };

/**
 * contender URL ORACLE TTL SKU…: makes read-modify-writes under locks and fences until TERM, then closes its store.
 *
 * If the store has stock, each turn also sells a unit under the same fence.
 */
const [url = "", oracle = "", ttlText = "", ...skus] = process.argv.slice(2);
const ttl = Number(ttlText);
let isEnding = false;
process.once("SIGTERM", () => {
  isEnding = true;
});
const opened = await open(url);
const { locks, close } = opened;
const inventory = opened.has("inventory") ? opened.inventory : undefined;
const print = (line: ContenderReport) => process.stdout.write(`${JSON.stringify(line)}\n`);
let turns = 0;

while (!isEnding) {
  await turn(locks, skus[Math.floor(Math.random() * skus.length)] ?? "");
}
await close();

async function turn(store: LockStore, sku: string): Promise<void> {
  turns += 1;
  const name = stockLock(sku);
  const owner = `${process.pid}-${turns}`;
  const requestedAt = now();
  const lock = await attempted("lock", () => acquire(store, name));
  if (!lock) return;
  const acquiredAt = now();
  const holder = { name, fence: String(lock.fence), owner };
  const { value } = await sendReport(oracle, { type: "claim", ...holder, requestedAt, acquiredAt });
  for (let look = Math.floor(Math.random() * 4); look > 0; look -= 1) {
    // Mostly short, for many turns; rarely longer than the rest of the lock's ttl.
    await sleep(Math.random() ** 4 * ttl);
    const at = now();
    if (!isHeld(lock)) break;
    await sendReport(oracle, { type: "held", ...holder, at });
  }
  // A late holder writes as well: the fence must refuse the write.
  if (value !== undefined) await sendReport(oracle, { type: "write", ...holder, value: value + 1 });
  await sell(sku, `sale-${owner}`, lock.fence);
  const startedAt = now();
  const answer = await attempted("unlock", () => lock.unlock());
  if (answer) await sendReport(oracle, { type: "release", ...holder, startedAt, answer });
}

/** Acquires the lock: one attempt in four does not wait, one lock in four is not renewed. */
function acquire(store: LockStore, name: string): Promise<Lock | undefined> {
  const renew = Math.random() < 0.75;
  return Math.random() < 0.25
    ? store.tryLock(name, { ttl, renew })
    : store.lock(name, { ttl, renew, wait: 10_000 });
}

async function sell(sku: string, operationId: string, fence: Fence): Promise<void> {
  const outcome = await inventory
    ?.decrement({ sku, quantity: 1, operationId, fence })
    .then((answer) => answer.outcome, codeOf);
  if (outcome) print({ sale: `${sku} ${operationId}`, outcome });
}

/** Calls `body` and reports an error with a code, as faults cause them. Any other error ends this process: a violation. */
async function attempted<T>(call: string, body: () => Promise<T>): Promise<T | undefined> {
  try {
    return await body();
  } catch (error) {
    const code = codeOf(error);
    print({ call, error: code });
    // A pause, or a store that fails at once would be called in a busy loop.
    await sleep(20);
    return undefined;
  }
}

function codeOf(error: unknown): string {
  const { code } = error as { code?: string };
  if (code === undefined || !/^[A-Z_]+$/.test(code)) throw error;
  return code;
}
