import {
  hasCode,
  StoreRefusedError,
  StoreUnavailableError,
  UnknownOutcomeError,
} from "../../../lock/errors.ts";
import { LeaseExistsError, NoLeaseError } from "./etcd.ts";

/** The status codes of gRPC, which the gateway uses as well. */
export const STATUS = {
  cancelled: 1,
  unknown: 2,
  invalidArgument: 3,
  deadlineExceeded: 4,
  notFound: 5,
  permissionDenied: 7,
  resourceExhausted: 8,
  failedPrecondition: 9,
  outOfRange: 11,
  unimplemented: 12,
  unavailable: 14,
  unauthenticated: 16,
} as const;

/** The failure of a call, as its transport reports it. */
export class CallFailure extends Error {
  readonly code: number;

  /** Whether the request was certainly not sent, for lack of a connection. */
  readonly unsent: boolean;

  constructor(code: number, message: string, { unsent = false, cause }: Details = {}) {
    super(message, cause === undefined ? undefined : { cause });
    this.code = code;
    this.unsent = unsent;
  }
}

interface Details {
  readonly unsent?: boolean;
  readonly cause?: unknown;
}

/** Creates the failure of a call that was aborted, or whose time is over. */
export function abortFailure({ reason }: AbortSignal, unsent: boolean): CallFailure {
  const message = reason instanceof Error ? reason.message : String(reason);
  return new CallFailure(STATUS.deadlineExceeded, message, { unsent, cause: reason });
}

/** The failure for an answer that is not etcd's: a proxy may have passed the request on, or the server is another one. */
export function toForeignFailure(status: number, answer: string, api: string): CallFailure {
  return status >= 500 || status === 408 || status === 429
    ? new CallFailure(STATUS.unavailable, answer)
    : new CallFailure(STATUS.unimplemented, `this is not etcd's ${api}: ${answer}`);
}

/**
 * The texts of errors for requests that etcd has not executed: the code "unavailable" alone does not tell. A request with
 * any other text may have been executed. The places are those of etcd 3.4. In 3.5 they are in server/, in files of the
 * same names; in 3.6, server/etcdserver/apply has the appliers, and server/etcdserver/txn/txn.go the checks of a transaction.
 */
const NOT_DONE = [
  // etcdserver/api/v3rpc/interceptor.go, newUnaryInterceptor: before the request gets to its service.
  "etcdserver: no leader",
  "etcdserver: not capable",
  "etcdserver: rpc not supported for learner",
  // etcdserver/v3_server.go, processInternalRaftRequestOnce: before it is proposed.
  "etcdserver: too many requests",
];

/** The codes of refusals that come before the request has any effect. */
const CERTAIN_REFUSALS: readonly number[] = [
  // etcdserver/api/v3rpc/key.go, checkTxnRequest; v3_server.go, "request is too large": before it is proposed.
  // etcdserver/apply_auth.go, authApplierV3.Txn: a stale token, before it is applied.
  STATUS.invalidArgument,
  // etcdserver/apply.go, checkRequestPut, for all puts before the first; lease/lessor.go, Revoke: no such lease.
  STATUS.notFound,
  // etcdserver/apply_auth.go, checkTxnAuth and checkLeasePuts, before it is applied.
  STATUS.permissionDenied,
  // lease/lessor.go, Grant: there is such a lease. auth/store.go: authentication is not enabled.
  STATUS.failedPrecondition,
  // etcdserver/apply.go, checkRequestRange, for all reads before the first write; lease/lessor.go, Grant: the ttl.
  STATUS.outOfRange,
  // gRPC itself: there is no such service here.
  STATUS.unimplemented,
  // etcdserver/v3_server.go, AuthInfoFromCtx in processInternalRaftRequestOnce: before it is proposed.
  STATUS.unauthenticated,
];

/**
 * etcdserver/apply.go, quotaApplierV3: until the alarm is raised, a request that needs space is executed and refused
 * then. An earlier refusal, by etcdserver/api/v3rpc/quota.go, has the same text.
 */
const NO_SPACE = "etcdserver: mvcc: database space exceeded";

/** The request is too large or, behind etcd's gateway, the answer to a request that was executed. */
const TOO_LARGE = "grpc: received message larger than max";

/** Whether a repetition is useless. */
function isRefusal({ code, message }: CallFailure): boolean {
  const isExhausted = code === STATUS.resourceExhausted;
  if (!isExhausted) return CERTAIN_REFUSALS.includes(code);
  return message.startsWith(NO_SPACE) || message.startsWith(TOO_LARGE);
}

/** Whether the request was certainly not executed. */
export function isNotDone({ code, unsent, message }: CallFailure): boolean {
  const isRefused = CERTAIN_REFUSALS.includes(code);
  return unsent || isRefused || NOT_DONE.some((text) => message.startsWith(text));
}

/** Returns the refusal of a request that may have been executed all the same. */
export function refusalIn(error: unknown): StoreRefusedError | undefined {
  const cause = hasCode(error, "UNKNOWN_OUTCOME") ? (error as Error).cause : undefined;
  return cause instanceof StoreRefusedError ? cause : undefined;
}

/** Whether a repetition, at another endpoint or later, may succeed. */
export function isPassing(failure: CallFailure): boolean {
  return !isRefusal(failure);
}

/** Whether the token is stale. The text is longer for a watch than for a call. */
export function isStaleToken({ message }: CallFailure): boolean {
  return (
    message.includes("etcdserver: invalid auth token") ||
    message.includes("etcdserver: revision of auth store is old")
  );
}

/** Creates the failure of a watch that the server has cancelled, or whose creation it has refused. */
export function watchFailure(reason: unknown, isRefused: boolean): CallFailure {
  const code = isRefused ? STATUS.permissionDenied : STATUS.cancelled;
  return new CallFailure(code, String(reason));
}

/** Whether the server refuses a watch to a user whose token is not stale. */
export function isRefusedWatch(failure: unknown): boolean {
  if (!(failure instanceof CallFailure) || isStaleToken(failure)) return false;
  return failure.code === STATUS.permissionDenied;
}

/** Converts a failure into the error for users. */
export function toError(address: string, failure: CallFailure, writes: boolean): Error {
  const { code, message } = failure;
  if (code === STATUS.failedPrecondition && message.includes("lease already exists")) {
    return new LeaseExistsError(message, { cause: failure });
  }
  if (code === STATUS.notFound && message.includes("lease not found")) {
    return new NoLeaseError(message, { cause: failure });
  }
  const error = isPassing(failure)
    ? new StoreUnavailableError(address, message, failure)
    : new StoreRefusedError(address, problemOf(failure), failure);
  if (!writes || isNotDone(failure)) return error;
  return isPassing(failure)
    ? new UnknownOutcomeError(address, "a request was executed", failure)
    : new UnknownOutcomeError(
        address,
        `a refused request was executed: ${problemOf(failure)}`,
        error,
      );
}

function problemOf({ message }: CallFailure): string {
  return message.includes(NO_SPACE)
    ? "its quota is used up: compact and defragment it, then disarm the alarm"
    : message;
}
