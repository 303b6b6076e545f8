import {
  SessionExpiredError,
  StoreRefusedError,
  StoreUnavailableError,
  UnknownOutcomeError,
} from "../lock/errors.ts";
import { BadVersionError, NodeExistsError, NoNodeError } from "./zookeeper.ts";

/** What a server answers in place of a result. */
export const CODES = {
  unimplemented: -6,
  operationTimeout: -7,
  badArguments: -8,
  noNode: -101,
  noAuth: -102,
  badVersion: -103,
  noChildrenForEphemerals: -108,
  nodeExists: -110,
  notEmpty: -111,
  sessionExpired: -112,
  invalidAcl: -114,
  authFailed: -115,
  sessionMoved: -118,
  quotaExceeded: -125,
} as const;

const REFUSALS: Readonly<Record<number, string>> = {
  [CODES.unimplemented]: "it does not know this request: it has to be 3.5 or later",
  [CODES.badArguments]: "bad arguments",
  [CODES.noAuth]: "this user may not do that with these nodes",
  [CODES.noChildrenForEphemerals]: "an ephemeral node is in the place of a folder",
  [CODES.notEmpty]: "there are nodes below it",
  [CODES.invalidAcl]: "it does not know this kind of access list",
  [CODES.authFailed]: "user and password were not accepted",
  [CODES.quotaExceeded]: "the quota is used up",
};

/** Above this, a code tells what a server has found before it did anything; below, what went wrong in doing it. */
const FIRST_CERTAIN = -100;

/** A server's answer as users know it. */
export function toError(address: string, code: number, writes: boolean): Error {
  if (code === CODES.noNode) return new NoNodeError("there is no such node");
  if (code === CODES.nodeExists) return new NodeExistsError("there is such a node already");
  if (code === CODES.badVersion) return new BadVersionError("the node has another version");
  if (code === CODES.sessionExpired) return new SessionExpiredError(address);
  const refusal = REFUSALS[code];
  if (refusal) return new StoreRefusedError(address, refusal);
  const cause = new Error(`it answered with code ${code}`);
  return writes && code > FIRST_CERTAIN
    ? new UnknownOutcomeError(address, "a request was carried out", cause)
    : new StoreUnavailableError(address, cause.message);
}
