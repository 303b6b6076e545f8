import { spawn } from "node:child_process";
import { appendFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { DecrementBatch, DecrementResult, Inventory } from "../../core/inventory/inventory.ts";
import { sleep } from "../../core/lock/abort.ts";
import { hasCode } from "../../core/lock/errors.ts";
import type { StockOrder } from "../../functions/batch/orders.ts";
import { lazy, sqs, stockHandler } from "../../functions/lambda/index.ts";
import { open } from "../../infra/open.ts";

/** The fault that an order meets once. */
export type Fault =
  /**
   * Its process is frozen before it is sold, the lock in its hands, for longer than that lives; and goes on deaf to
   * the lock's signal, so that only the fence is left to turn it away.
   */
  | "freeze"
  /** The process hangs before the sale, and is killed at its timeout while it holds the lock. */
  | "hang-before"
  /** The process hangs after the sale, and is killed before its response. */
  | "hang-after";

export type StormOrder = StockOrder & { readonly fault?: Fault };

const { STORM_STORE = "", STORM_LOCKS, STORM_TTL, STORM_WAIT, STORM_POISON = "" } = process.env;

/** The folder with one file per event, and per order and outcome: a file has one character for each time it was told. */
const { STORM_NOTES = "" } = process.env;

const opened = lazy(async () => {
  const store = await open(STORM_STORE);
  const { locks } = STORM_LOCKS ? await open(STORM_LOCKS) : store;
  return { inventory: faulty(store.inventory), locks };
});

/** The faults by order id. */
const faults = new Map<string, Fault>();

export const handler = stockHandler(opened, {
  ttl: Number(STORM_TTL),
  wait: Number(STORM_WAIT),
  reserve: 400,
  delay: sqs().delay,
  poison: { to: ({ record }) => sqs().forward(STORM_POISON, record) },
  order(body) {
    const { fault, ...order } = body as StormOrder;
    if (fault) faults.set(order.orderId, fault);
    return order;
  },
  async onAnswer({ orderId, outcome }) {
    appendFileSync(join(STORM_NOTES, `told ${orderId} ${outcome}`), ".");
  },
});

function faulty(inventory: Inventory): Inventory {
  return {
    ...inventory,
    async decrementMany(batch) {
      const fault = nextFault(batch);
      if (fault?.kind === "freeze") return sellLate(inventory, batch);
      if (fault?.kind === "hang-before") hang();
      try {
        const answers = await inventory.decrementMany(batch);
        if (fault) hang();
        return answers;
      } catch (error) {
        // There was no sale to hang after: the next attempt has the fault.
        if (fault) rmSync(fault.note);
        throw error;
      }
    },
  };
}

/** Returns a fault that has not happened yet, and notes it. */
function nextFault({ orders }: DecrementBatch) {
  for (const { operationId } of orders) {
    const kind = faults.get(operationId);
    const name = `${kind} ${operationId}`;
    if (kind && note(name)) return { kind, note: join(STORM_NOTES, name) };
  }
  return undefined;
}

/** Resolves to false when the event has happened before. */
function note(what: string): boolean {
  try {
    writeFileSync(join(STORM_NOTES, what), "", { flag: "wx" });
    return true;
  } catch {
    return false;
  }
}

async function sellLate(
  inventory: Inventory,
  { signal: _, ...batch }: DecrementBatch,
): Promise<readonly DecrementResult[]> {
  const id = batch.orders[0]?.operationId;
  const stoppedAt = Date.now();
  await freeze();
  if (Date.now() - stoppedAt > Number(STORM_TTL)) note(`thawed ${id}`);
  try {
    return await inventory.decrementMany(batch);
  } catch (error) {
    if (hasCode(error, "FENCED_OUT")) note(`fenced-out ${id}`);
    throw error;
  }
}

/** Another process wakes this one long after the lock has expired. */
async function freeze(): Promise<void> {
  const seconds = (Number(STORM_TTL) * 1.5 + 1_000) / 1_000;
  const command = `sleep ${seconds}; kill -CONT ${process.pid}`;
  spawn("sh", ["-c", command], { detached: true, stdio: "ignore" }).unref();
  process.kill(process.pid, "SIGSTOP");
  // A stop takes hold when the process next enters the kernel.
  await sleep(1);
}

/** Blocks this process for good. */
function hang(): void {
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0);
}
