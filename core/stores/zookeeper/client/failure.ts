import {
  SessionExpiredError,
  StoreRefusedError,
  StoreUnavailableError,
  UnknownOutcomeError,
} from "../../../lock/errors.ts";
import { BadVersionError, NodeExistsError, NoNodeError } from "./zookeeper.ts";

/** The error codes of a server (KeeperException.Code). */
export const CODES = {
  unimplemented: -6,
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
  notReadOnly: -119,
  loginRequired: -124,
  quotaExceeded: -125,
  throttled: -127,
} as const;

/**
 * Answers that prove that a request was not executed. Unless noted, PrepRequestProcessor throws them in `pRequest2Txn`,
 * and `pRequestHelper` proposes an ErrorTxn in place of the change; each part of a transaction is an error then. Other codes
 * prove nothing: FinalRequestProcessor also answers -5 after a request that was executed, if writing the answer fails.
 */
const REFUSALS: Readonly<Record<number, string>> = {
  // ZooKeeperServer.submitRequestNow, for an unknown kind of request; validateCreateRequest.
  [CODES.unimplemented]: "the server does not know this request; it must be 3.5 or later",
  // validatePath, getParentPathAndValidate.
  [CODES.badArguments]: "bad arguments",
  // ZooKeeperServer.checkACL.
  [CODES.noAuth]: "the user lacks the permission for these nodes",
  // pRequest2TxnCreate.
  [CODES.noChildrenForEphemerals]: "a parent node is ephemeral",
  // pRequest2Txn, of a delete.
  [CODES.notEmpty]: "the node has children",
  // fixupACL.
  [CODES.invalidAcl]: "the server does not know this kind of access list",
  // ZooKeeperServer.processPacket, which takes no request from such a connection.
  [CODES.authFailed]: "user and password were not accepted",
  // AuthenticationHelper.enforceAuthentication, before the request is submitted.
  [CODES.loginRequired]: "the server enforces another kind of login",
  // ZooKeeperServer.checkQuota.
  [CODES.quotaExceeded]: "the quota is used up",
};

/** Answers that prove the same, and may change soon. */
const PASSING: Readonly<Record<number, string>> = {
  // SessionTrackerImpl.checkSession.
  [CODES.sessionMoved]: "the session moved to another connection",
  // ReadOnlyRequestProcessor.run, which passes no write on.
  [CODES.notReadOnly]: "the server has lost the quorum",
  // PrepRequestProcessor.pRequest skips such a request, and FinalRequestProcessor answers.
  [CODES.throttled]: "the server is overloaded",
};

/** Converts the code of an answer into the error for users. */
export function toError(address: string, code: number, writes: boolean): Error {
  // getRecordForPath, pRequest2TxnCreate, checkAndIncVersion, SessionTrackerImpl.checkSession: as for refusals.
  if (code === CODES.noNode) return new NoNodeError("the node does not exist");
  if (code === CODES.nodeExists) return new NodeExistsError("the node exists already");
  if (code === CODES.badVersion) return new BadVersionError("the node has another version");
  if (code === CODES.sessionExpired) return new SessionExpiredError(address);
  const refusal = REFUSALS[code];
  if (refusal) return new StoreRefusedError(address, refusal);
  const passing = PASSING[code];
  const cause = new Error(`the server answered with code ${code}`);
  return writes && !passing
    ? new UnknownOutcomeError(address, "a request was executed", cause)
    : new StoreUnavailableError(address, passing ?? cause.message);
}
