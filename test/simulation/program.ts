import { z } from "zod";
import { list, sql } from "../../core/database/sql.ts";
import { stockLock } from "../../core/inventory/inventory.ts";
import { sleep } from "../../core/lock/abort.ts";
import { hasCode, isCertain, LockError } from "../../core/lock/errors.ts";
import type { Fence } from "../../core/lock/fence.ts";
import type { Lock, LockSet, Unlocked } from "../../core/lock/lock.ts";
import { isHeld } from "../../core/lock/lock-handle.ts";
import { createRuntime, type Runtime, TerminalError, workflow } from "../../core/steps/index.ts";
import { sqlStore } from "../../core/stores/sql/store.ts";
import { recordedJournal } from "../models/recorded-journal.ts";
import type { CallEvent } from "../models/replay.ts";
import { heldFor } from "../support/held-for.ts";
import type { Attempt } from "./history.ts";
import type { RemoteDatabase } from "./network.ts";
import type { Operation } from "./plan.ts";
import { COUNTED, type Shared, SOLD } from "./shared.ts";
import type { Machine } from "./world.ts";

/** The input of the workflow. */
const ORDER = z.object({ fails: z.boolean(), pause: z.number() });

interface StockChange {
  readonly sku: string;
  readonly quantity: number;
  readonly operationId: string;
  readonly reservation?: string;
  readonly expiresIn?: number;
}

/** Who calls, in one sequence of calls, and under which fence. */
type Caller = Required<Pick<CallEvent, "client" | "name" | "token">>;

interface LockedWork {
  readonly fence: Fence;
  readonly lock: Lock;
  readonly caller: Caller;
  hold(span: number): Promise<void>;
}

/** One process: the real layers over its own connection to the store, and the programs that use them. */
export class Client {
  readonly #shared: Shared;
  readonly #machine: Machine;
  readonly #store;
  readonly #runtime;
  readonly #order;
  readonly #programs: number;
  readonly #locks = new Set<object>();

  /** The locks that were asked for. */
  #sequences = 0;

  /** Whether a lock may be held that a call has left behind, as its error says. */
  #mayHaveLeft = false;

  constructor(
    shared: Shared,
    machine: Machine,
    { database, programs }: { database: RemoteDatabase; programs: number },
  ) {
    this.#shared = shared;
    this.#programs = programs;
    this.#machine = machine;
    const { ttl } = shared.plan;
    this.#store = sqlStore(database, { label: machine.name });
    this.#order = this.#makeWorkflow();
    const { locks } = this.#store;
    const journal = recordedJournal(this.#store.journal, machine.name, (event) =>
      this.#event(event),
    );
    const workflows = [this.#order];
    this.#runtime = createRuntime({ journal, locks, workflows, lease: ttl, owner: machine.name });
  }

  /** Executes the operations one after the other. Never rejects: unknown errors are violations. */
  async run(operations: readonly Operation[], onDone: () => void): Promise<void> {
    for (const operation of operations) {
      await this.#execute(operation).catch((error) => this.#checkError(operation.kind, error));
      onDone();
    }
  }

  /** After the last fault: everything that was begun comes to its end, and everything works. */
  async recover(runs: readonly string[]): Promise<void> {
    const { history, ended } = this.#shared;
    const sales = [...history.attempts.keys()].filter((id) => id.startsWith("sale"));
    for (const id of runs) await this.#retry(() => this.#finish(id));
    for (const id of runs) if (!ended.has(id)) history.violate("progress", `${id} never ends`);
    for (const id of sales) {
      await this.#retry(() => this.#sellMany({ kind: "sell-many", ids: [id], think: 0 }));
    }
    for (const sku of [COUNTED, SOLD]) await this.#retry(() => this.#restock(sku));
    await this.#retry(() => this.#store.inventory.expire(SOLD));
  }

  /** Tries again for a while: late requests, and transactions that lost their client, may still hold the store. */
  async #retry(action: () => Promise<void>): Promise<void> {
    for (let attempt = 0; ; attempt += 1) {
      try {
        return await action();
      } catch (error) {
        const mayHelp =
          error instanceof LockError && (error.retryable || hasCode(error, "LOCK_LOST"));
        if (!mayHelp || attempt === 3) {
          this.#shared.history.violate("progress", `after the last fault: ${error}`);
          return;
        }
        await sleep(1_000);
      }
    }
  }

  async #restock(sku: string): Promise<void> {
    const { inventory } = this.#store;
    await this.#locked(sku, 5_000, async ({ fence }) => {
      const change = { sku, quantity: 1, operationId: `last-${sku}` };
      await this.#change("restock", change, fence, () => inventory.restock({ ...change, fence }));
    });
  }

  /** A dead client believes nothing. */
  die(): void {
    this.#machine.isAlive = false;
    for (const lock of this.#locks) this.#shared.history.forget(lock);
  }

  async #finish(id: string): Promise<void> {
    for (let attempt = 0; attempt < 20; attempt += 1) {
      const outcome = await this.#runtime.resume(id).catch((error) => {
        if (error instanceof TerminalError && error.code === "UNKNOWN_RUN") return undefined;
        throw error;
      });
      if (!outcome) {
        this.#shared.ended.set(id, { end: "never begun", at: Number.POSITIVE_INFINITY });
        return;
      }
      if (this.#noteOutcome(id, outcome)) return;
      await sleep(Math.min(500, waitOf(outcome)));
    }
  }

  async #execute(operation: Operation): Promise<void> {
    switch (operation.kind) {
      case "count":
        return this.#count(operation);
      case "sell":
        return this.#sell(operation);
      case "sell-many":
        return this.#sellMany(operation);
      case "reserve":
        return this.#reserve(operation);
      case "both":
        return this.#holdBoth(operation);
      case "run":
        return this.#execution(operation);
      case "cancel":
        await sleep(operation.after);
        return this.#cancel(operation.id);
    }
  }

  async #count(operation: Operation & { kind: "count" }): Promise<void> {
    const { id, think, wait, ensures } = operation;
    await this.#locked(COUNTED, wait, async ({ fence, hold, lock, caller }) => {
      const { inventory } = this.#store;
      const { plan, history } = this.#shared;
      if (ensures) await lock.ensure(1.5 * plan.ttl);
      const claim = { ...caller, operation: "claim" };
      await this.#recorded(claim, () => this.#guarded(fence, () => inventory.claim(fence)));
      const read = { ...caller, operation: "read" };
      const onHand = await this.#recorded(
        read,
        async () => (await inventory.get(COUNTED))?.onHand ?? 0,
        (value) => ({ value }),
      );
      await hold(think);
      const change = { sku: COUNTED, quantity: onHand + 1, operationId: id };
      await this.#recorded(
        { ...caller, operation: "write", value: onHand + 1 },
        () => this.#change("set", change, fence, () => inventory.set({ ...change, fence })),
        () => ({}),
        // An earlier attempt may have been applied.
        () => history.attempts.get(id)?.length === 1,
      );
    });
  }

  async #sell(operation: Operation & { kind: "sell" }): Promise<void> {
    const { id, quantity, isFenced, think } = operation;
    const { inventory } = this.#store;
    const change = { sku: SOLD, quantity, operationId: id };
    const sell = (fence?: Fence) =>
      this.#change("decrement", change, fence, () =>
        inventory.decrement({ ...change, ...(fence && { fence }) }),
      );
    if (!isFenced) return sell();
    await this.#locked(SOLD, this.#shared.plan.ttl * 3, async ({ fence, hold }) => {
      await hold(think);
      await sell(fence);
    });
  }

  async #sellMany({ ids, think }: Operation & { kind: "sell-many" }): Promise<void> {
    const { inventory } = this.#store;
    const orders = [...new Set(ids)].map((operationId) => ({ operationId, quantity: 1 }));
    await this.#locked(SOLD, this.#shared.plan.ttl * 3, async ({ fence, hold }) => {
      await hold(think);
      const attempts = orders.map(({ operationId }) =>
        this.#shared.history.attempt(
          operationId,
          { kind: "decrement", sku: SOLD, quantity: 1 },
          fence,
        ),
      );
      const calls = orders.map(({ operationId }) =>
        this.#stockCall("decrement", { sku: SOLD, quantity: 1, operationId }, fence),
      );
      try {
        const results = await this.#guarded(fence, () =>
          inventory.decrementMany({ sku: SOLD, orders, fence }),
        );
        results.forEach(({ outcome, remaining }, i) => {
          Object.assign(attempts[i] as Attempt, { end: outcome, remaining });
        });
      } catch (error) {
        for (const attempt of attempts) attempt.end = endOf(error);
        throw error;
      } finally {
        attempts.forEach((attempt, i) => {
          calls[i]?.(attempt);
        });
      }
    });
  }

  async #reserve(operation: Operation & { kind: "reserve" }): Promise<void> {
    const { id, quantity, expiresIn, end, think } = operation;
    const { inventory } = this.#store;
    const change = { sku: SOLD, quantity, operationId: id, expiresIn };
    await this.#change("reserve", change, undefined, () => inventory.reserve(change));
    await sleep(think);
    if (!end) return;
    const close = { sku: SOLD, reservation: id, operationId: `${end}-${id}` };
    await this.#change(end, { ...close, quantity: 0 }, undefined, () => inventory[end](close));
  }

  async #holdBoth({ think, isToTheEnd }: Operation & { kind: "both" }): Promise<void> {
    const { plan, world, history } = this.#shared;
    const { ttl } = plan;
    const names = [stockLock(COUNTED), stockLock(SOLD)];
    const invokedAt = world.now;
    const options = { ttl, wait: 2 * ttl, renew: false };
    const client = this.#nextSequence();
    for (const name of names) this.#event({ client, name, operation: "acquire", type: "invoke" });
    const locks = await this.#acquire(() => this.#store.locks.lockAll(names, options));
    for (const [name, fence] of locks.fences) {
      const token = String(fence);
      this.#event({ client, name, token, operation: "acquire", type: "ok" });
    }
    history.acquired(this.#machine.name, locks, invokedAt, world.now);
    try {
      if (isToTheEnd) return await this.#holdToTheEnd(locks, client);
      await this.#hold(locks, think / 2, client);
      await locks.ensure(ttl / 2);
      await this.#hold(locks, think / 2, client);
    } finally {
      const releases = [...locks.fences].map(([name, fence]) => {
        return { client, name, token: String(fence), operation: "release" };
      });
      for (const release of releases) this.#event({ ...release, type: "invoke" });
      const end = endOfRelease(await this.#unlock(locks));
      for (const release of releases) this.#event({ ...release, type: "ok", ...end });
    }
  }

  /** Runs the body under the sku's lock. */
  async #locked(
    sku: string,
    wait: number,
    body: (work: LockedWork) => Promise<void>,
  ): Promise<void> {
    const { plan, world, history } = this.#shared;
    const { locks } = this.#store;
    const name = stockLock(sku);
    const invokedAt = world.now;
    const client = this.#nextSequence();
    const acquire = () =>
      wait === 0
        ? locks.tryLock(name, { ttl: plan.ttl })
        : locks.lock(name, { ttl: plan.ttl, wait });
    const lock = await this.#recorded(
      { client, name, operation: "acquire" },
      () => this.#acquire(acquire),
      (acquired) => (acquired ? { token: String(acquired.fence) } : { type: "fail" }),
    );
    if (!lock) return;
    history.acquired(this.#machine.name, lock, invokedAt, world.now);
    this.#note(`holds ${name}, token ${lock.fence.token}`);
    const caller = { client, name, token: String(lock.fence) };
    const hold = (span: number) => this.#hold(lock, span, client);
    try {
      await body({ fence: lock.fence, lock, caller, hold });
    } finally {
      const release = { ...caller, operation: "release" };
      await this.#recorded(release, () => this.#unlock(lock), endOfRelease);
    }
  }

  #nextSequence(): string {
    this.#sequences += 1;
    return `${this.#machine.name}.${this.#sequences}`;
  }

  #event(event: Omit<CallEvent, "time">): void {
    this.#shared.events.push({ time: this.#shared.world.now, ...event });
  }

  /** Records a call and its end. Without `isCertain`, the call may have had its effect although it was refused. */
  async #recorded<T>(
    about: Omit<CallEvent, "time" | "type">,
    call: () => Promise<T>,
    endOf: (result: T) => Partial<CallEvent> = () => ({}),
    isCertain = () => true,
  ): Promise<T> {
    this.#event({ ...about, type: "invoke" });
    try {
      const result = await call();
      this.#event({ ...about, type: "ok", ...endOf(result) });
      return result;
    } catch (error) {
      const isRefused = hasCode(error, "FENCED_OUT") && isCertain();
      this.#event({ ...about, ...(isRefused ? FENCED_OUT : { type: "unknown" }) });
      throw error;
    }
  }

  /** Checks that a failed acquire with a certain error leaves nothing at the store. */
  async #acquire<T extends Lock | LockSet | undefined>(call: () => Promise<T>): Promise<T> {
    const { history, server } = this.#shared;
    try {
      const lock = await call();
      if (!lock) return lock;
      this.#locks.add(lock);
      if (!isHeld(lock)) history.violate("validity", `${this.#machine.name} gets a lost lock`);
      return lock;
    } catch (error) {
      this.#mayHaveLeft ||= hasCode(error, "UNKNOWN_OUTCOME");
      const [left] = history.undroppedOf(this.#machine.name, server.now);
      // Of two programs, the other one may hold a lock.
      if (left && this.#programs === 1 && !this.#mayHaveLeft) {
        history.violate("nothing held after a failed acquire", `${left} after ${error}`);
      }
      throw error;
    }
  }

  /** Works for a while, and checks the lock in between. */
  async #hold(lock: Lock | LockSet, span: number, client: string): Promise<void> {
    for (let part = 0; part < 3; part += 1) {
      await sleep(span / 3);
      this.#checkHeld(lock, client);
    }
  }

  /** Works until the lock is lost, which the clock must tell in time. */
  async #holdToTheEnd(lock: Lock | LockSet, client: string): Promise<void> {
    await sleep(0.9 * this.#shared.plan.ttl);
    for (;;) {
      this.#checkHeld(lock, client);
      await sleep(1);
    }
  }

  /** Throws when the lock is lost. A lock that is not lost is held at the store. */
  #checkHeld(lock: Lock | LockSet, client: string): void {
    lock.assertHeld();
    const { world, server, history, plan } = this.#shared;
    if (plan.storeJumps.length > 0) return;
    const fences = "fences" in lock ? [...lock.fences.values()] : [lock.fence];
    const until = world.now + (heldFor(lock, 2 * plan.ttl) ?? 0);
    for (const fence of fences) {
      const [name, token] = [fence.resource, String(fence)];
      this.#event({ client, name, token, operation: "hold", type: "ok", until });
    }
    const lost = fences.find((fence) => !history.isHeldBy(fence, server.now));
    if (!lost) return;
    const problem = `${this.#machine.name} holds ${lost.resource} at ${world.now.toFixed(1)}, the store says no`;
    history.violate("validity", problem);
  }

  /** Returns the answer; undefined if it is not known. */
  async #unlock(lock: Lock | LockSet) {
    this.#shared.history.forget(lock);
    const answer = await lock.unlock().catch((error) => {
      this.#mayHaveLeft = true;
      this.#checkError("unlock", error);
      return undefined;
    });
    this.#note(`unlocks: ${answer ?? "unknown"}`);
    return answer;
  }

  /** Notes what a change of stock was answered. */
  async #change(
    kind: Attempt["change"]["kind"],
    change: StockChange,
    fence: Fence | undefined,
    call: () => Promise<{ readonly outcome: Attempt["end"]; readonly remaining: number }>,
  ): Promise<void> {
    const { operationId, ...rest } = change;
    for (let number = 0; ; number += 1) {
      const attempt = this.#shared.history.attempt(operationId, { kind, ...rest }, fence);
      const ended = this.#stockCall(kind, change, fence);
      try {
        const { outcome, remaining } = await this.#guarded(fence, call);
        Object.assign(attempt, { end: outcome, remaining });
        this.#note(`${kind} ${operationId}: ${outcome}, ${remaining} left`);
        return;
      } catch (error) {
        attempt.end = endOf(error);
        // As a caller of the library does: the same operation again, until it is known.
        if (attempt.end !== "unknown" || number === 2) throw error;
      } finally {
        ended(attempt);
      }
    }
  }

  /** Records a call for a change of the stock that is sold, and returns what records its end. */
  #stockCall(
    kind: Attempt["change"]["kind"],
    { sku, quantity, operationId, reservation }: StockChange,
    fence: Fence | undefined,
  ): (attempt: Pick<Attempt, "end" | "remaining">) => void {
    if (sku !== SOLD) return () => {};
    const about = {
      client: this.#nextSequence(),
      name: stockLock(sku),
      operation: kind === "decrement" ? "sale" : kind,
      id: operationId,
      units: quantity,
      ...(fence && { token: String(fence) }),
      ...(reservation !== undefined && { reservation }),
    };
    this.#event({ ...about, type: "invoke" });
    return ({ end, remaining }) => {
      if (end === "none") return;
      // A refused request may have been sent twice, and be applied the second time.
      if (end === "refused" || end === "unknown") this.#event({ ...about, type: "unknown" });
      else if (end === "conflict") this.#event({ ...about, type: "fail", code: end });
      else {
        const left = remaining === undefined ? {} : { remaining };
        const type = end === "applied" ? "ok" : "fail";
        this.#event({ ...about, ...left, type, ...(type === "fail" && { code: end }) });
      }
    };
  }

  /** Makes a call under a fence, which is refused only if a later holder exists. */
  async #guarded<T>(fence: Fence | undefined, call: () => Promise<T>): Promise<T> {
    const { history, server } = this.#shared;
    try {
      const answer = await call();
      if (fence) history.claims.push({ fence, at: server.now });
      return answer;
    } catch (error) {
      if (fence && hasCode(error, "FENCED_OUT")) history.refused.push(fence);
      throw error;
    }
  }

  async #execution({ id, fails, pause }: Operation & { kind: "run" }): Promise<void> {
    for (let attempt = 0; attempt < 4; attempt += 1) {
      const outcome = await this.#runtime.execute(this.#order, { fails, pause }, { id });
      if (this.#noteOutcome(id, outcome)) return;
      await sleep(Math.min(300, waitOf(outcome)));
    }
  }

  /** Returns whether the run has ended. All clients see one end. */
  #noteOutcome(id: string, outcome: Outcome): boolean {
    const { history, ended, server } = this.#shared;
    if (outcome.status === "blocked") {
      history.violate("progress", `${id} is blocked: ${outcome.error.message}`);
      return true;
    }
    if (outcome.status !== "completed" && outcome.status !== "failed") return false;
    const end =
      outcome.status === "completed"
        ? `completed ${outcome.output}`
        : `failed, compensated: ${outcome.compensated}`;
    const before = ended.get(id);
    if (before && before.end !== end) {
      history.violate("one history of a run", `${id}: ${before.end}, then ${end}`);
    }
    this.#note(`${id}: ${end}`);
    if (!before) ended.set(id, { end, at: server.now });
    return true;
  }

  async #cancel(id: string): Promise<void> {
    try {
      const answer = await this.#runtime.cancel(id);
      this.#note(`cancels ${id}: ${answer}`);
      if (answer === "requested") this.#shared.cancelled.add(id);
    } catch (error) {
      // The run may not have begun.
      if (!(error instanceof TerminalError)) throw error;
    }
  }

  #makeWorkflow() {
    const { world, outside, answers, calls, plan, ended, history } = this.#shared;
    const { name } = this.#machine;
    const began = (runId: string, step: string) => {
      if (ended.has(runId))
        history.violate("no work after the end", `${name}: ${step} of ${runId}`);
    };
    return workflow({ name: "order", version: 1, input: ORDER }, async (ctx, { fails, pause }) => {
      const { runId } = ctx;
      const answer = await ctx.step("ask", async () => {
        await sleep(pause);
        return `${name} ${world.now}`;
      });
      answers.set(runId, (answers.get(runId) ?? new Set()).add(answer));
      await ctx.step(
        "call",
        async ({ idempotencyKey }) => {
          await sleep(pause);
          if (!outside.has(idempotencyKey)) outside.set(idempotencyKey, "done");
          await sleep(pause);
        },
        async (_, { stepIdempotencyKey }) => {
          outside.set(stepIdempotencyKey, "undone");
        },
      );
      await ctx.step("once", { semantics: "at-most-once" }, async () => {
        began(runId, "once");
        calls.set(runId, (calls.get(runId) ?? 0) + 1);
        await sleep(pause);
      });
      const lock = { names: stockLock(SOLD), ttl: plan.ttl };
      const sale = { sku: SOLD, quantity: 1, operationId: `${runId}-sell` };
      const sold = this.#stockCall("decrement", sale, undefined);
      const end = await ctx.step.tx("sell", { lock }, async ({ tx, fence }) => {
        const { now } = this.#store.database.dialect;
        const row = list([runId, fence.token, now]);
        await tx.batch([sql`INSERT INTO simulated_effect (run, token, at) VALUES (${row})`]);
        // Shorter than the store's patience with a silent transaction.
        await sleep(5);
        return (await this.#store.inventory.within(tx).decrement(sale)).outcome;
      });
      sold({ end });
      if (fails) throw new TerminalError("REFUSED", "the order is refused");
      return answer;
    });
  }

  #note(text: string): void {
    this.#shared.note(`${this.#machine.name} ${text}`);
  }

  /** Under faults, the errors of the contract are expected; all others are defects. */
  #checkError(where: string, error: unknown): void {
    this.#note(`${where}: ${error}`);
    if (error instanceof LockError && error.code !== "STORE_REFUSED") return;
    const { name, code, message } = error as { name?: string; code?: string; message?: string };
    if (name === "InventoryError" || name === "StaleRunError") return;
    this.#shared.history.violate("known errors", `${where}: ${name} ${code ?? ""} ${message}`);
  }
}

/** The end of a call that the resource refused. */
const FENCED_OUT = { type: "fail", code: "FENCED_OUT" } as const;

/** The end of a release whose answer may not be known. */
function endOfRelease(answer: Unlocked | undefined): Partial<CallEvent> {
  if (answer === "released") return {};
  return answer ? { type: "fail", code: answer } : { type: "unknown" };
}

type Outcome = Awaited<ReturnType<Runtime["resume"]>>;

function endOf(error: unknown): Attempt["end"] {
  if ((error as { code?: string }).code === "OPERATION_CONFLICT") return "conflict";
  const isRefusal = isCertain(error) || hasCode(error, "FENCED_OUT");
  return isRefusal || (error as Error).name === "InventoryError" ? "refused" : "unknown";
}

function waitOf(outcome: object): number {
  const { retryIn, wakeIn } = outcome as { retryIn?: number; wakeIn?: number };
  return Math.max(1, retryIn ?? wakeIn ?? 1);
}
