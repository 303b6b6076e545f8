import { StoreRefusedError, StoreUnavailableError, UnknownOutcomeError } from "../lock/errors.ts";
import { LeaseExistsError, NoLeaseError } from "./etcd.ts";

/** gRPC's status codes, which the gateway uses as well. */
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

/** Why a call has no answer, as a transport saw it. */
export class CallFailure extends Error {
  readonly code: number;

  /** The request certainly never left: there was no connection. */
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

/** The caller has given up, or the time is over. */
export function abandoned({ reason }: AbortSignal, unsent: boolean): CallFailure {
  const message = reason instanceof Error ? reason.message : String(reason);
  return new CallFailure(STATUS.deadlineExceeded, message, { unsent, cause: reason });
}

/**
 * etcd's own texts tell apart what its codes do not: of two "unavailable", one may have been carried out.
 * What is not listed counts as "may have been".
 */
const NOT_DONE = [
  "etcdserver: no leader",
  "etcdserver: not capable",
  "etcdserver: rpc not supported for learner",
  "etcdserver: too many requests",
];

/** Codes with which a server says no before it has done anything. */
const REFUSALS: readonly number[] = [
  STATUS.invalidArgument,
  STATUS.notFound,
  STATUS.permissionDenied,
  STATUS.failedPrecondition,
  STATUS.outOfRange,
  STATUS.unimplemented,
  STATUS.unauthenticated,
];

/** The same of resources exhausted. gRPC has this code also for what it gives up after it was carried out. */
const EXHAUSTED = [
  "etcdserver: mvcc: database space exceeded",
  "grpc: received message larger than max",
];

function isRefusal({ code, message }: CallFailure): boolean {
  const isExhausted = code === STATUS.resourceExhausted;
  return isExhausted ? EXHAUSTED.some((text) => message.startsWith(text)) : REFUSALS.includes(code);
}

/** Whether the request has certainly not been carried out. */
export function isNotDone(failure: CallFailure): boolean {
  const { unsent, message } = failure;
  return unsent || isRefusal(failure) || NOT_DONE.some((text) => message.startsWith(text));
}

/** Whether another endpoint, or the same one later, may do better. */
export function isPassing(failure: CallFailure): boolean {
  return !isRefusal(failure);
}

/** Whether the token is no longer good. A watch is told so in a longer text than a call. */
export function isStaleToken({ message }: CallFailure): boolean {
  return (
    message.includes("etcdserver: invalid auth token") ||
    message.includes("etcdserver: revision of auth store is old")
  );
}

/** The failure as users know it. */
export function toError(address: string, failure: CallFailure, writes: boolean): Error {
  const { code, message } = failure;
  if (code === STATUS.failedPrecondition && message.includes("lease already exists")) {
    return new LeaseExistsError(message, { cause: failure });
  }
  if (code === STATUS.notFound && message.includes("lease not found")) {
    return new NoLeaseError(message, { cause: failure });
  }
  if (message.includes("database space exceeded")) {
    const problem = "its quota is used up: compact and defragment it, then disarm the alarm";
    return new StoreRefusedError(address, problem, failure);
  }
  if (!isPassing(failure)) return new StoreRefusedError(address, message, failure);
  return writes && !isNotDone(failure)
    ? new UnknownOutcomeError(address, "a request was carried out", failure)
    : new StoreUnavailableError(address, message, failure);
}
