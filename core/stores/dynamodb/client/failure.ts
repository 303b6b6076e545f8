import {
  StoreRefusedError,
  StoreUnavailableError,
  UnknownOutcomeError,
} from "../../../lock/errors.ts";

/**
 * `unsent`: the request was certainly not sent. `passing`: for now it was refused or not sent, and has changed nothing.
 * `refused`: a repetition is useless. `unanswered`: it may have been executed.
 */
type FailureKind = "unsent" | "passing" | "refused" | "unanswered";

/** The failure of a request. */
export class RequestFailure extends Error {
  readonly kind: FailureKind;

  /** The name of DynamoDB's exception, or NoCredentials; "" without one. */
  readonly code: string;

  constructor(kind: FailureKind, message: string, code = "") {
    super(message);
    this.kind = kind;
    this.code = code;
  }
}

/** The exceptions that refuse a request for now: the guide "Error handling with DynamoDB" says to retry them. */
const PASSING = [
  // The backups of a new table.
  "ContinuousBackupsUnavailableException",
  "ProvisionedThroughputExceededException",
  "ReplicatedWriteConflictException",
  "RequestLimitExceeded",
  "ThrottlingException",
  "TransactionConflictException",
];

/** The same as reasons of a cancelled transaction. */
const PASSING_REASONS = ["ProvisionedThroughputExceeded", "ThrottlingError", "TransactionConflict"];

/** An answer with an error, as DynamoDB or a proxy sends it. */
export interface ErrorAnswer {
  readonly status: number;
  readonly code: string;
  readonly message: string;

  /** The reason of each write of a cancelled transaction. */
  readonly reasons: readonly { readonly Code?: string }[];
}

/**
 * Sorts an answer with an error. DynamoDB's source is closed; its documentation is all that proves: answers of status
 * 400 come before any effect ("Error handling with DynamoDB"), also those of a cancelled transaction ("TransactWriteItems").
 * A gateway that has passed a request on answers 5xx for its failure (RFC 9110, section 15.6), some 408 or 429.
 */
export function toFailure({ status, code, message, reasons }: ErrorAnswer): RequestFailure {
  const text = `${code || `HTTP ${status}`}: ${message}`;
  const isPassing =
    PASSING.includes(code) || reasons.some(({ Code = "" }) => PASSING_REASONS.includes(Code));
  if (isPassing) return new RequestFailure("passing", text, code);
  // An earlier request with the same token is still at work.
  const isAtWork = code === "TransactionInProgressException";
  // A proxy may have passed the request on.
  const isForeign = code === "" && (status < 400 || status === 408 || status === 429);
  const isUnknown = isAtWork || isForeign || status >= 500;
  return new RequestFailure(isUnknown ? "unanswered" : "refused", text, code);
}

/** Returns the error for users. */
export function toError(address: string, failure: RequestFailure, reads: boolean): Error {
  const { kind, code, message } = failure;
  if (code === "ResourceNotFoundException") {
    return new StoreRefusedError(address, "there is no such table: run lockstep migrate", failure);
  }
  if (kind === "refused") return new StoreRefusedError(address, message, failure);
  if (kind === "unanswered" && !reads) {
    return new UnknownOutcomeError(address, "a request was executed", failure);
  }
  return new StoreUnavailableError(address, message, failure);
}
