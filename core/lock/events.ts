import type { LossReason } from "./errors.ts";
import type { Millis } from "./time.ts";

/** What happens to the locks of a client, for logs and metrics. Core itself logs nothing. */
export type LockEvent = { readonly names: readonly string[] } & (
  | { readonly type: "acquired"; readonly fences: readonly string[]; readonly waited: Millis }
  | { readonly type: "busy"; readonly waited: Millis }
  | { readonly type: "renewed"; readonly ttl: Millis }
  | { readonly type: "renewal-failed"; readonly error: unknown }
  | { readonly type: "lost"; readonly why: LossReason }
  | { readonly type: "released"; readonly answer: "released" | "was-lost"; readonly held: Millis }
  | { readonly type: "release-failed"; readonly error: unknown }
);

export type LockListener = (event: LockEvent) => void;
