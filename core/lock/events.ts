import type { LossReason } from "./errors.ts";
import type { Millis } from "./time.ts";

/** An event of a client's locks, for logs and metrics. */
export type LockEvent = {
  readonly names: readonly string[];

  /** One per name, once the lock is acquired. */
  readonly fences?: readonly string[];
} & (
  | { readonly type: "acquired"; readonly fences: readonly string[]; readonly waited: Millis }
  /** Other holders had the lock for all of `wait`. */
  | { readonly type: "busy"; readonly waited: Millis }
  /** Nothing was acquired: the store failed, or the caller aborted. */
  | { readonly type: "failed"; readonly error: unknown; readonly waited: Millis }
  | { readonly type: "renewed"; readonly ttl: Millis }
  | { readonly type: "renewal-failed"; readonly error: unknown }
  /** Once per lock that can no longer be proven held, unless it was released or its store was closed. */
  | { readonly type: "lost"; readonly why: Exclude<LossReason, "released" | "closed"> }
  | { readonly type: "released"; readonly answer: "released" | "was-lost"; readonly held: Millis }
  | { readonly type: "release-failed"; readonly error: unknown; readonly held: Millis }
);

export type LockListener = (event: LockEvent) => void;
