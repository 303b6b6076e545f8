import type { LossReason } from "./errors.ts";
import type { Millis } from "./time.ts";

/** What happens to the locks of a client, for logs and metrics. Core itself logs nothing. */
export type LockEvent = {
  readonly names: readonly string[];

  /** One for each name, from when the lock was acquired. */
  readonly fences?: readonly string[];
} & (
  | { readonly type: "acquired"; readonly fences: readonly string[]; readonly waited: Millis }
  /** Others had it for all of `wait`. */
  | { readonly type: "busy"; readonly waited: Millis }
  /** Nothing was acquired: the store has failed, or the caller has given up. */
  | { readonly type: "failed"; readonly error: unknown; readonly waited: Millis }
  | { readonly type: "renewed"; readonly ttl: Millis }
  | { readonly type: "renewal-failed"; readonly error: unknown }
  /** Once for each lock that can no longer be proven held and was not given back, nor given up with its store. */
  | { readonly type: "lost"; readonly why: Exclude<LossReason, "released" | "closed"> }
  | { readonly type: "released"; readonly answer: "released" | "was-lost"; readonly held: Millis }
  | { readonly type: "release-failed"; readonly error: unknown; readonly held: Millis }
);

export type LockListener = (event: LockEvent) => void;
