import type { Inventory } from "../../core/inventory/inventory.ts";
import type { Duration } from "../../core/lock/duration.ts";
import type { LockStore } from "../../core/lock/lock.ts";
import type { OptionNames } from "../../core/lock/options.ts";
import type { Millis } from "../../core/lock/time.ts";
import type { Runtime } from "../../core/steps/contract.ts";
import type { AnyWorkflow } from "../../core/steps/workflow.ts";
import type { LockWaitOption } from "../invocation/invocation.ts";
import type { Authorize } from "./auth.ts";
import type { StepLog } from "./step-log.ts";

export interface AppOptions extends LockWaitOption {
  /** Authorises requests: `bearer([token])`, `gatewayAuthorizer` or a function. Default: only /health is allowed. */
  readonly authorize?: Authorize;

  /** Executes the runs. Without it the app has no routes for runs. */
  readonly runtime?: Runtime;

  /** The workflows that clients may start, by name. Of several versions the newest is started. */
  readonly workflows?: readonly AnyWorkflow[];

  /** Without it the app has no routes for stock. */
  readonly inventory?: Inventory | undefined;

  /** Checked by /ready, as are the journal and the inventory. */
  readonly locks?: LockStore;

  /** Further checks of /ready, by name. */
  readonly checks?: Readonly<Record<string, HealthCheck>>;

  /** Opens the sealed fences in the header Lockstep-Fence: at least 16 bytes. Without it the header is refused. */
  readonly secret?: string | undefined;

  /** The time limit of a request; a run that needs longer is parked. Default 25 s: API Gateway's limit is 30 s. */
  readonly timeout?: Duration;

  /** The most bytes of a body. Default 256 KiB. */
  readonly bodyLimit?: number;

  /** The time in which a body must have arrived, within `timeout`. Default 10 s. */
  readonly bodyTimeout?: Duration;
  readonly limits?: RequestLimits;

  /** The status for a run that waits for a lock. Default 423. Many clients retry by themselves only after 429. */
  readonly busyStatus?: (typeof BUSY_STATUSES)[number];

  /** The status for runs that failed with this code. Default 422 for a TerminalError, 409 for SOLD_OUT, else 500. */
  readonly statuses?: Readonly<Record<string, (typeof FAILED_STATUSES)[number]>>;

  /**
   * The origins whose pages may call the app from a browser (CORS), such as "https://shop.example"; "*" for all. The app
   * answers their preflight requests. Default none.
   */
  readonly origins?: readonly string[];

  /** The prefix of all paths, such as "/v1". Default "". */
  readonly basePath?: string;

  /** Starts a graceful shutdown: runs are parked at their next step. */
  readonly drain?: AbortSignal;

  /** Ends all work at once: running steps are aborted, and other processes resume their runs. */
  readonly abort?: AbortSignal;

  /** Called for each request. */
  readonly log?: AccessLog;

  /**
   * Called with each error that a response hides: the cause of a 500 or of an unavailable store, as it was thrown, with
   * its stack; and, without a stack, the error of a run that has failed or is blocked in this request. The errors of a run's
   * steps, as they were thrown, go to the `onError` of the runtime. Errors of the listener are ignored. Default: each is
   * written to stderr as one line of JSON.
   */
  readonly onError?: (
    error: unknown,
    at: { readonly requestId: string; readonly operation: string; readonly runId?: string },
  ) => void;

  /** Adds the steps of a run to the access log. The runtime must report to its `onEvent`. */
  readonly stepLog?: StepLog;

  /** The page at /docs. With a page, /docs and /openapi.json are public. Default none. */
  readonly page?: DocsPage;
}

/** The request that an error comes from. */
export type ErrorSource = Parameters<NonNullable<AppOptions["onError"]>>[1];

export const BUSY_STATUSES = [423, 409, 429] as const;

export const FAILED_STATUSES = [400, 402, 403, 404, 409, 410, 422, 423] as const;

export const APP_OPTIONS = {
  authorize: true,
  runtime: true,
  workflows: true,
  inventory: true,
  locks: true,
  checks: true,
  secret: true,
  timeout: true,
  bodyLimit: true,
  bodyTimeout: true,
  limits: true,
  lockWait: true,
  busyStatus: true,
  statuses: true,
  origins: true,
  basePath: true,
  drain: true,
  abort: true,
  log: true,
  onError: true,
  stepLog: true,
  page: true,
} satisfies OptionNames<AppOptions>;

/** Returns the newest version of each workflow. */
export function newestOf(workflows: AppOptions["workflows"] = []): readonly AnyWorkflow[] {
  const oldestFirst = workflows.toSorted((a, b) => a.version - b.version);
  return [...new Map(oldestFirst.map((workflow) => [workflow.name, workflow])).values()];
}

/** Rejects when a store does not answer. */
export type HealthCheck = () => Promise<unknown>;

export interface RequestLimits {
  /** The most concurrent requests of this process, without those whose bodies are still arriving. Default 1,000. */
  readonly requests?: number;

  /** The most bodies that are arriving at a time. Default 1,000. */
  readonly bodies?: number;

  /** The most concurrent requests for one sku, workflow or run. Default 200. */
  readonly perKey?: number;
}

export const REQUEST_LIMITS = {
  requests: true,
  bodies: true,
  perKey: true,
} satisfies OptionNames<RequestLimits>;

/** The files of the page that shows the OpenAPI document, by name. One of them is "index.html". */
export interface DocsPage {
  readonly files: ReadonlyMap<
    string,
    { readonly type: string; readonly body: string | Uint8Array<ArrayBuffer> }
  >;
}

/** The access log's data of one request: never a body, a token or a stack. */
export interface AccessLogEntry {
  /** The time of arrival, in ISO 8601. */
  readonly at: string;
  readonly requestId: string;
  readonly method: string;

  /** As sent: percent-encoded, without the query. */
  readonly path: string;
  readonly operation: string;
  readonly status: number;
  readonly took: Millis;

  /** The code of the problem response. */
  readonly code?: string;

  /** The cause of a failure that the response does not show. */
  readonly error?: string;
  readonly principal?: string;
  readonly runId?: string;
  readonly workflow?: string;
  readonly runStatus?: string;
  readonly sku?: string;

  /** The Idempotency-Key of a change of stock. */
  readonly operationId?: string;
  readonly replayed?: boolean;

  /** The steps that ran during this request: key, outcome and fences. */
  readonly steps?: readonly string[];
}

/** Errors of the log are ignored. */
export type AccessLog = (entry: AccessLogEntry) => void;
