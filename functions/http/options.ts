import type { Inventory } from "../../core/inventory/inventory.ts";
import type { LockStore } from "../../core/lock/lock.ts";
import type { Duration } from "../../core/steps/duration.ts";
import type { Runtime } from "../../core/steps/runtime.ts";
import type { AnyWorkflow } from "../../core/steps/workflow.ts";
import type { AccessLog } from "./access-log.ts";
import type { Limits } from "./admission.ts";
import type { Authorize } from "./auth.ts";
import type { Page } from "./page.ts";
import type { Check } from "./readiness.ts";
import type { Trail } from "./trail.ts";

export interface AppOptions {
  /** Who may do what: `bearer([token])`, `gatewayAuthorizer` or a function. Without it, everything but /health is refused. */
  readonly authorize?: Authorize;

  /** Carries the runs. Without it there are no routes for runs. */
  readonly runtime?: Runtime;

  /** What may be started, by name; of several versions the newest. */
  readonly workflows?: readonly AnyWorkflow[];

  /** Without it there are no routes for stock. */
  readonly inventory?: Inventory | undefined;

  /** Asked by /ready, as are journal and inventory. */
  readonly locks?: LockStore;

  /** More for /ready to ask, by name. */
  readonly checks?: Readonly<Record<string, Check>>;

  /** Opens the sealed fences of the header Lockstep-Fence: at least 16 bytes. Without it there is no such header. */
  readonly secret?: string | undefined;

  /** How long a request may take; a run that needs longer is parked. Default 25 s: API Gateway gives up after 30. */
  readonly timeout?: Duration;

  /** The most bytes of a body. Default 256 KiB. */
  readonly bodyLimit?: number;
  readonly limits?: Limits;

  /** What a run is answered with that waits for a lock. Default 423; many clients try again by themselves only after 429. */
  readonly busyStatus?: 423 | 409 | 429;

  /** The status for runs that have failed with this code. Default 422 for a TerminalError, 409 for SOLD_OUT, else 500. */
  readonly statuses?: Readonly<Record<string, 400 | 402 | 403 | 404 | 409 | 410 | 422 | 423>>;

  /** What stands before all paths, such as "/v1". Default nothing. */
  readonly basePath?: string;

  /** Aborts when the server is to end: runs are parked at their next step. */
  readonly drain?: AbortSignal;

  /** Aborts to end it at once: what is under way in runs is aborted, and they are left to others. */
  readonly abort?: AbortSignal;

  /** Told of each request. Default nobody. */
  readonly log?: AccessLog;

  /** For the steps in the log: the one whose `listen` the runtime was made with. */
  readonly trail?: Trail;

  /** The page at /docs. With it, that page and /openapi.json are open to anybody. Default none. */
  readonly page?: Page;
}
