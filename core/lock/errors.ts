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
  /** Whether the same call may succeed later without any other change. */
  readonly retryable: boolean;
  readonly cause?: unknown;
}

/** The base of all failures of a lock or a store. Recognise a failure by its `code`, which survives bundling. */
export class LockError extends Error {
  override readonly name: string = "LockError";
  readonly code: LockErrorCode;
  readonly retryable: boolean;

  constructor(message: string, { code, retryable, cause }: Details) {
    super(message, cause === undefined ? undefined : { cause });
    this.code = code;
    this.retryable = retryable;
  }
}

/** Other holders had the lock for all of `wait`. Nothing is held. */
export class LockTimeoutError extends LockError {
  override readonly name = "LockTimeoutError";

  constructor(names: readonly string[], wait: Millis, problem = `was still busy after ${wait} ms`) {
    super(`lock ${quote(...names)} ${problem}`, { code: "LOCK_TIMEOUT", retryable: true });
  }
}

/** The reason why a lock is no longer held. */
export type LossReason = "expired" | "taken" | "max-hold" | "released" | "closed";

/** Whether the lock was lost, not released. */
export function isLoss(why: LossReason): why is Exclude<LossReason, "released" | "closed"> {
  return why !== "released" && why !== "closed";
}

const LOSSES: Readonly<Record<LossReason, string>> = {
  expired: "can no longer be proven held: it was not renewed in time",
  taken: "has expired at the store, or has another holder",
  "max-hold": "has been held for as long as maxHold allows",
  released: "was released",
  closed: "was released because its store was closed",
};

/** The lock can no longer be proven held. The `reason` of the lock's signal. */
export class LockLostError extends LockError {
  override readonly name = "LockLostError";
  readonly why: LossReason;

  constructor(names: readonly string[], why: LossReason) {
    super(`lock ${quote(...names)} ${LOSSES[why]}`, { code: "LOCK_LOST", retryable: false });
    this.why = why;
  }
}

/** The session of a lock or of a queue entry has ended. */
export class SessionExpiredError extends LockError {
  override readonly name: string = "SessionExpiredError";

  constructor(session: string, how = "has expired") {
    super(`session ${session} ${how}`, { code: "SESSION_EXPIRED", retryable: true });
  }
}

/** A mutex without a lock was unlocked, or a candidate that does not lead proclaimed a value. */
export class LockReleasedError extends LockError {
  override readonly name = "LockReleasedError";

  constructor(prefix: string) {
    super(`${quote(prefix)} is not held: it was not acquired, or was released`, {
      code: "LOCK_RELEASED",
      retryable: false,
    });
  }
}

/** The client has as many waiters as `maxWaiters` allows. */
export class TooManyWaitersError extends LockError {
  override readonly name = "TooManyWaitersError";

  constructor(limit: number) {
    super(
      `${limit} callers already wait for locks of this client: raise maxWaiters, or retry later`,
      {
        code: "TOO_MANY_WAITERS",
        retryable: true,
      },
    );
  }
}

/** The store did not answer, and the request has certainly not been executed. */
export class StoreUnavailableError extends LockError {
  override readonly name = "StoreUnavailableError";

  constructor(store: string, problem: string, cause?: unknown) {
    super(`${store} is unavailable: ${problem}`, {
      code: "STORE_UNAVAILABLE",
      retryable: true,
      cause,
    });
  }
}

/** The store refused the request: credentials, privileges, certificate, missing tables. A retry does not help. */
export class StoreRefusedError extends LockError {
  override readonly name = "StoreRefusedError";

  constructor(store: string, problem: string, cause?: unknown) {
    super(`${store} refuses: ${problem}`, { code: "STORE_REFUSED", retryable: false, cause });
  }
}

/** The store was closed by its user. */
export class StoreClosedError extends LockError {
  override readonly name = "StoreClosedError";

  constructor() {
    super("the store is closed", { code: "STORE_CLOSED", retryable: false });
  }
}

/** The request may or may not have been executed: the store did not answer in time. */
export class UnknownOutcomeError extends LockError {
  override readonly name = "UnknownOutcomeError";

  constructor(store: string, what: string, cause?: unknown) {
    super(`${store}: it is not known whether ${what}`, {
      code: "UNKNOWN_OUTCOME",
      retryable: true,
      cause,
    });
  }
}

/** Whether `error` has one of these codes. Also recognises errors of another copy of this package. */
export function hasCode(error: unknown, ...codes: readonly LockErrorCode[]): boolean {
  return error instanceof Error && codes.includes((error as Partial<LockError>).code as never);
}

/** Whether the error proves that the request has not been executed. */
export function isCertain(error: unknown): boolean {
  return hasCode(error, "STORE_UNAVAILABLE", "STORE_REFUSED", "STORE_CLOSED");
}

/** Returns user input for a message: escaped, and at most 64 characters of each. */
export function quote(...inputs: readonly string[]): string {
  const shorten = (text: string) => (text.length > 64 ? `${text.slice(0, 63)}…` : text);
  return inputs.map((input) => JSON.stringify(shorten(String(input)))).join(", ");
}
