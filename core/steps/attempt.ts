import type { NewRecord, StepRecord } from "../journal/journal.ts";
import { deadline, race } from "../lock/abort.ts";
import { hasCode } from "../lock/errors.ts";
import type { Fence } from "../lock/fence.ts";
import type { LockSet } from "../lock/lock.ts";
import { elapsedSince, instant, type Millis } from "../lock/time.ts";
import { within } from "./around.ts";
import type { Carrier } from "./carrier.ts";
import { decode, encode, encodeError, encodeResult, hashOf } from "./codec.ts";
import { StepInterruptedError, StepTimeoutError, TerminalError } from "./errors.ts";
import { Breakdown, Suspension } from "./halt.ts";
import { attemptKey, type Met } from "./history.ts";
import { pauseAfter } from "./retry.ts";
import { validate } from "./schema.ts";
import type { CheckedLock, Work } from "./work.ts";
import type { TxScope } from "./workflow.ts";

/** What a failed attempt leaves in the journal. */
interface Failure {
  readonly error: unknown;

  /** From when it was written. */
  readonly retryIn: Millis;
}

/** Carries a step out until the journal has the last word on it, and resolves to that. */
export async function carryOut(carrier: Carrier, work: Work, met: Met): Promise<StepRecord> {
  await waitForRetry(carrier, met);
  for (let attempt = met.failures + 1; ; attempt += 1) {
    if (met.attempt("started", attempt)) {
      const error = new StepInterruptedError(work.key);
      return carrier.append(
        recordOf(work, attempt, { outcome: "failed", value: encodeError(error) }),
      );
    }
    carrier.mayBegin();
    if (carrier.deadline.remaining() <= work.budget) throw new Suspension("deadline", 0);
    const one = new Attempt(carrier, work, attempt);
    const ended = await one.run();
    if (ended.record) return ended.record;
    const { error, retryIn } = judge(ended.error, attempt, work);
    const value = encodeError(error);
    const spans = one.spans();
    if (retryIn === undefined) {
      return carrier.append(recordOf(work, attempt, { outcome: "failed", value, ...spans }));
    }
    const failure: Failure = { error: decode(value), retryIn };
    await carrier.append({
      ...recordOf(work, attempt, { outcome: "retry", value: encode(failure), ...spans }),
      key: attemptKey(work.key, "retry", attempt),
    });
    await carrier.pause("retry-delay", retryIn);
  }
}

/** A policy that fails when it is asked has the last word by that. */
function judge(error: unknown, attempt: number, { retry }: Work) {
  try {
    return { error, retryIn: pauseAfter(error, attempt, retry) };
  } catch (problem) {
    return { error: problem, retryIn: undefined };
  }
}

/** The run was parked until the next attempt, but a signal may have woken it before. */
async function waitForRetry(carrier: Carrier, met: Met): Promise<void> {
  const last = met.attempt("retry", met.failures);
  if (last === undefined || met.attempt("started", met.failures + 1)) return;
  const { retryIn } = decode<Failure>(last.value);
  await carrier.pause("retry-delay", retryIn - carrier.since(last.at));
}

function recordOf(
  { key, kind, argsHash }: Work,
  attempt: number,
  rest: Pick<NewRecord, "outcome" | "value"> & Partial<NewRecord>,
): NewRecord {
  return { key, kind, attempt, argsHash, ...rest };
}

type Ended =
  | { readonly record: StepRecord; readonly error?: undefined }
  | { readonly record?: undefined; readonly error: unknown };

class Attempt {
  readonly #carrier: Carrier;
  readonly #work: Work;
  readonly #attempt: number;
  readonly #startedAt = instant();
  #waited: Millis | undefined;

  constructor(carrier: Carrier, work: Work, attempt: number) {
    this.#carrier = carrier;
    this.#work = work;
    this.#attempt = attempt;
  }

  spans(): Pick<NewRecord, "took" | "waited"> {
    const waited = this.#waited ?? 0;
    // A clock that is set back may say that the wait alone was longer.
    return { took: Math.max(0, elapsedSince(this.#startedAt) - waited), waited: this.#waited };
  }

  /** Rejects only with a Suspension or a Breakdown. */
  async run(): Promise<Ended> {
    const { around, runId, workflowName: workflow } = this.#carrier;
    const { name, key, kind } = this.#work;
    const step = { runId, workflow, name, key, kind, attempt: this.#attempt };
    try {
      return { record: await within(around.step?.bind(around), step, () => this.#locked()) };
    } catch (error) {
      if (error instanceof Suspension || error instanceof Breakdown) throw error;
      this.#carrier.stillCarrying();
      return { error };
    }
  }

  async #locked(): Promise<StepRecord> {
    const { lock } = this.#work;
    const held = lock && (await this.#acquire(lock));
    try {
      return await this.#underLock(held);
    } finally {
      await held?.[Symbol.asyncDispose]();
    }
  }

  /** Contention is no failure, and neither is a lock store that is away. */
  async #acquire({ names, ttl, wait, onBusy }: CheckedLock): Promise<LockSet> {
    const { locks, deadline, signal } = this.#carrier;
    if (!locks) throw new TerminalError("NO_LOCKS", "the runtime was made without `locks`");
    const startedAt = instant();
    // Whoever gets it last of all must still have time for what it is for.
    const patience = Math.min(wait, Math.max(0, deadline.remaining() - this.#work.budget));
    try {
      const atLeast = Math.max(DEFAULT_TTL, locks.traits.minTtl);
      return await locks.lockAll(names, {
        ttl: ttl ?? atLeast,
        wait: patience,
        deadline,
        signal,
      });
    } catch (error) {
      if (hasCode(error, "LOCK_TIMEOUT") && onBusy === "fail" && patience === wait) {
        throw new TerminalError("LOCK_TIMEOUT", (error as Error).message);
      }
      if (hasCode(error, ...PASSING))
        throw new Suspension("lock-busy", BUSY_PAUSE * (0.5 + Math.random()));
      throw error;
    } finally {
      this.#waited = elapsedSince(startedAt);
    }
  }

  async #underLock(held: LockSet | undefined): Promise<StepRecord> {
    const { key, timeout } = this.#work;
    const late = () => new StepTimeoutError(key, timeout);
    const limit = deadline(timeout, late, this.#carrier.signal, held?.signal);
    const scope = this.#scope(limit.signal, held);
    try {
      if (this.#work.transacted) return await this.#inTransaction(scope, held);
      if (this.#work.atMostOnce) await this.#takeNote();
      const value = await this.#call(scope);
      held?.assertHeld();
      return await this.#carrier.append(this.#done(value, held));
    } finally {
      limit[Symbol.dispose]();
    }
  }

  #scope(signal: AbortSignal, held: LockSet | undefined): TxScope {
    const { runId, deadline } = this.#carrier;
    const { key } = this.#work;
    return {
      runId,
      key,
      attempt: this.#attempt,
      idempotencyKey: idempotencyKey(runId, key),
      signal,
      deadline,
      ...(held && { lock: held, fence: this.#firstOf(held), fences: held.fences }),
    } as unknown as TxScope;
  }

  #firstOf({ fences }: LockSet): Fence | undefined {
    return fences.get(this.#work.lock?.names[0] ?? "");
  }

  async #takeNote(): Promise<void> {
    const record = recordOf(this.#work, this.#attempt, { outcome: "started", value: undefined });
    const key = attemptKey(this.#work.key, "started", this.#attempt);
    await this.#carrier.append({ ...record, key });
  }

  /** The encoded result. */
  async #call(scope: TxScope): Promise<string> {
    // The process may have been frozen since: the clocks know before the timers do.
    this.#carrier.stillCarrying();
    (scope as Partial<TxScope>).lock?.assertHeld();
    scope.signal.throwIfAborted();
    const result = await race(Promise.resolve(this.#work.fn(scope)), scope.signal);
    const { output, key } = this.#work;
    const what = `the result of ${key}`;
    return encodeResult(what, output ? await validate(what, output, result) : result);
  }

  /** An error of the step's own is told apart from one of the journal by being the one that was thrown here. */
  async #inTransaction(scope: TxScope, held: LockSet | undefined): Promise<StepRecord> {
    const { key } = this.#work;
    const fences = [...(held?.fences.values() ?? [])];
    let thrown: { readonly error: unknown } | undefined;
    try {
      return await this.#carrier.transact({ key, fences }, async (tx) => {
        thrown = undefined;
        try {
          const packet: TxScope["tx"]["packet"] = (statements) => tx.packet(statements);
          return this.#done(await this.#call({ ...scope, tx: { packet } }), held);
        } catch (error) {
          thrown = { error };
          throw error;
        }
      });
    } catch (error) {
      const cause = error instanceof Breakdown ? error.error : error;
      const isOurs = thrown !== undefined && thrown.error === cause;
      throw isOurs || hasCode(cause, "FENCED_OUT", "FENCE_INVALID") ? cause : error;
    }
  }

  #done(value: string, held: LockSet | undefined): NewRecord {
    const fence = held && [...held.fences.values()].join(" ");
    return recordOf(this.#work, this.#attempt, { outcome: "ok", value, fence, ...this.spans() });
  }
}

const DEFAULT_TTL: Millis = 10_000;

/** What is no failure of the step: its lock was not to be had for the moment, here. */
const PASSING = [
  "LOCK_TIMEOUT",
  "STORE_UNAVAILABLE",
  "STORE_CLOSED",
  "SESSION_EXPIRED",
  "TOO_MANY_WAITERS",
  "UNKNOWN_OUTCOME",
] as const;

/** How long a run is parked for a lock that others have, give or take a half. */
const BUSY_PAUSE: Millis = 500;

/** The longest operation id of the inventory, in bytes. */
const LONGEST_KEY = 255;

/** Readable where it fits. */
export function idempotencyKey(runId: string, key: string): string {
  const text = `${runId}/${key}`;
  return new TextEncoder().encode(text).length <= LONGEST_KEY ? text : hashOf([runId, key]);
}
