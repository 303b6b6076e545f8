import type { Fence } from "./fence.ts";
import type { Millis } from "./time.ts";

export type LockErrorCode =
  | "LOCK_TIMEOUT"
  | "LOCK_LOST"
  | "LOCK_RELEASED"
  | "SESSION_EXPIRED"
  | "TOO_MANY_WAITERS"
  | "STORE_UNAVAILABLE"
  | "STORE_REFUSED"
  | "STORE_CLOSED"
  | "UNKNOWN_OUTCOME"
  | "FENCED_OUT"
  | "FENCE_INVALID";

interface Details {
  readonly code: LockErrorCode;
  /** Whether the same call may succeed later without anybody changing anything. */
  readonly retryable: boolean;
  readonly cause?: unknown;
}

/** What every failure of a lock or a store is. Recognise it by `code`: it survives bundling, a message does not. */
export class LockError extends Error {
  readonly code: LockErrorCode;
  readonly retryable: boolean;

  constructor(message: string, { code, retryable, cause }: Details) {
    super(message, cause === undefined ? undefined : { cause });
    this.name = new.target.name;
    this.code = code;
    this.retryable = retryable;
  }
}

/** Others held the lock for all of `wait`. Nothing is held. */
export class LockTimeoutError extends LockError {
  constructor(names: readonly string[], wait: Millis) {
    super(`lock ${quote(...names)} was still busy after ${wait} ms`, {
      code: "LOCK_TIMEOUT",
      retryable: true,
    });
  }
}

/** Why a lock is no longer held. */
export type LossReason = "expired" | "taken" | "max-hold" | "released" | "closed";

/** Whether it was lost, and not given back. */
export function isLoss(why: LossReason): why is Exclude<LossReason, "released" | "closed"> {
  return why !== "released" && why !== "closed";
}

const LOSSES: Readonly<Record<LossReason, string>> = {
  expired: "can no longer be proven held: it was not renewed in time",
  taken: "is no longer ours: the store says so",
  "max-hold": "is held for no longer than maxHold allows",
  released: "was released",
  closed: "was given up: its store was closed",
};

/** The lock can no longer be proven held. It is the `reason` of the lock's signal. */
export class LockLostError extends LockError {
  readonly why: LossReason;

  constructor(names: readonly string[], why: LossReason) {
    super(`lock ${quote(...names)} ${LOSSES[why]}`, { code: "LOCK_LOST", retryable: false });
    this.why = why;
  }
}

/** The session that a lock or a place in line hangs on is gone. */
export class SessionExpiredError extends LockError {
  constructor(session: string, how = "has expired") {
    super(`session ${session} ${how}`, { code: "SESSION_EXPIRED", retryable: true });
  }
}

/** A mutex that holds nothing was unlocked. */
export class LockReleasedError extends LockError {
  constructor(prefix: string) {
    super(`mutex ${quote(prefix)} holds nothing: it was not locked, or was released`, {
      code: "LOCK_RELEASED",
      retryable: false,
    });
  }
}

/** This client already has as many waiters as it allows. */
export class TooManyWaitersError extends LockError {
  constructor(limit: number) {
    super(`${limit} callers already wait for locks of this client`, {
      code: "TOO_MANY_WAITERS",
      retryable: true,
    });
  }
}

/** The store did not answer, and what was asked of it has certainly not happened. */
export class StoreUnavailableError extends LockError {
  constructor(store: string, problem: string, cause?: unknown) {
    super(`${store} is unavailable: ${problem}`, {
      code: "STORE_UNAVAILABLE",
      retryable: true,
      cause,
    });
  }
}

/** The store answered no: credentials, privileges, certificate, missing tables. Trying again does not help. */
export class StoreRefusedError extends LockError {
  constructor(store: string, problem: string, cause?: unknown) {
    super(`${store} refuses: ${problem}`, { code: "STORE_REFUSED", retryable: false, cause });
  }
}

/** The store was closed by its user. */
export class StoreClosedError extends LockError {
  constructor() {
    super("the store is closed", { code: "STORE_CLOSED", retryable: false });
  }
}

/** What was asked of the store may or may not have happened, and it could not be found out in time. */
export class UnknownOutcomeError extends LockError {
  constructor(store: string, what: string, cause?: unknown) {
    super(`${store}: it is not known whether ${what}`, {
      code: "UNKNOWN_OUTCOME",
      retryable: true,
      cause,
    });
  }
}

/** This holder is late: the resource has seen a later one, or its lock is gone. It has changed nothing. */
export class FencedOutError extends LockError {
  readonly presented: Fence;
  /**
   * The fence that the resource holds, in the form of `Fence.toString()`: the presented one where nobody came
   * after it, and its lock is gone all the same, or where another holder has come with an equal one.
   */
  readonly current: string;

  constructor(presented: Fence, current: string, { byEqual = false } = {}) {
    const resource = quote(presented.resource);
    super(problemOf(presented, resource, current, byEqual), {
      code: "FENCED_OUT",
      retryable: false,
    });
    this.presented = presented;
    this.current = current;
  }
}

function problemOf(fence: Fence, resource: string, current: string, byEqual: boolean): string {
  if (byEqual) return `another holder came to ${resource} first, with a fence equal to ${fence}`;
  return current === fence.toString()
    ? `the lock of fence ${fence} on ${resource} is gone`
    : `${resource} has moved on to fence ${current}: ${fence} is late`;
}

/** The fence was not issued by a lock, belongs to another resource, or its seal is broken. */
export class FenceInvalidError extends LockError {
  constructor(problem: string) {
    super(`not a valid fence: ${problem}`, { code: "FENCE_INVALID", retryable: false });
  }
}

/** Whether `error` is a failure of ours with one of these codes, even one from another copy of this package. */
export function hasCode(error: unknown, ...codes: readonly LockErrorCode[]): boolean {
  return error instanceof Error && codes.includes((error as Partial<LockError>).code as never);
}

/** Whether what was asked of the store has certainly not happened. */
export function isCertain(error: unknown): boolean {
  return hasCode(error, "STORE_UNAVAILABLE", "STORE_REFUSED", "STORE_CLOSED");
}

/** User input as it may stand in a message: escaped, and no longer than 64 characters. */
export function quote(...inputs: readonly string[]): string {
  const shorten = (text: string) => (text.length > 64 ? `${text.slice(0, 63)}…` : text);
  return inputs.map((input) => JSON.stringify(shorten(input))).join(", ");
}
