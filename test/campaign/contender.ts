import { setTimeout as sleep } from "node:timers/promises";
import { stockLock } from "../../core/inventory/inventory.ts";
import type { Fence } from "../../core/lock/fence.ts";
import type { Lock, LockStore } from "../../core/lock/lock.ts";
import { open } from "../../infra/open.ts";
import { now, tell } from "./oracle.ts";

/** What a contender tells the campaign, a line of JSON each. */
export type Report =
  | { readonly error: string; readonly call: string }
  | { readonly sale: string; readonly outcome: string };

/**
 * contender URL ORACLE TTL SKU…: read-modify-writes under locks and fences until TERM, then closes its store.
 *
 * Where the store keeps stock, each turn also sells a unit under the same fence.
 */
const [url = "", oracle = "", ttlText = "", ...skus] = process.argv.slice(2);
const ttl = Number(ttlText);
const { locks, inventory, close } = await open(url);
const report = (line: Report) => process.stdout.write(`${JSON.stringify(line)}\n`);
let turns = 0;
let isOver = false;
process.once("SIGTERM", () => {
  isOver = true;
});

while (!isOver) {
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
  const { value } = await tell(oracle, { type: "claim", ...holder, requestedAt, acquiredAt });
  for (let look = Math.floor(Math.random() * 4); look > 0; look -= 1) {
    // Mostly short, so that there are many turns; rarely longer than what is left of the lock.
    await sleep(Math.random() ** 4 * ttl);
    const at = now();
    if (!isHeld(lock)) break;
    await tell(oracle, { type: "belief", ...holder, at });
  }
  // A late holder writes all the same: the fence has to stop it.
  if (value !== undefined) await tell(oracle, { type: "write", ...holder, value: value + 1 });
  await sell(sku, `sale-${owner}`, lock.fence);
  const startedAt = now();
  const answer = await attempted("unlock", () => lock.unlock());
  if (answer) await tell(oracle, { type: "release", ...holder, startedAt, answer });
}

/** One time in four without waiting; one lock in four is not renewed. */
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
  if (outcome) report({ sale: `${sku} ${operationId}`, outcome });
}

function isHeld(lock: Lock): boolean {
  try {
    lock.assertHeld();
    return true;
  } catch {
    return false;
  }
}

/** Failures with a code are what the campaign provokes; anything else ends this process, and is a violation. */
async function attempted<T>(call: string, body: () => Promise<T>): Promise<T | undefined> {
  try {
    return await body();
  } catch (error) {
    const code = codeOf(error);
    report({ call, error: code });
    // A store that fails at once is not asked without a pause.
    await sleep(20);
    return undefined;
  }
}

function codeOf(error: unknown): string {
  const { code } = error as { code?: string };
  if (code === undefined || !/^[A-Z_]+$/.test(code)) throw error;
  return code;
}
