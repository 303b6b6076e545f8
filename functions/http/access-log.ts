import type { Millis } from "../../core/lock/time.ts";

/** What is known of one request, for a log: never a body, a token or a stack. */
export interface AccessEntry {
  /** When it came, as ISO 8601. */
  readonly at: string;
  readonly requestId: string;
  readonly method: string;

  /** As it was sent, percent-encoded and without its query. */
  readonly path: string;
  readonly operation: string;
  readonly status: number;
  readonly took: Millis;

  /** Of the problem that it was answered with. */
  readonly code?: string;

  /** What has gone wrong, where that is not said in the answer. */
  readonly error?: string;
  readonly who?: string;
  readonly runId?: string;
  readonly workflow?: string;
  readonly runStatus?: string;
  readonly sku?: string;

  /** The Idempotency-Key of a change of stock. */
  readonly operationId?: string;
  readonly replayed?: boolean;

  /** The steps that were carried out during this request, with the fences that they were done under. */
  readonly steps?: readonly string[];
}

/** What it throws is lost. */
export type AccessLog = (entry: AccessEntry) => void;
