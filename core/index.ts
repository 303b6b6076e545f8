/** Locks and fences: the contract of every store, and its errors. */
export { type Duration, deadlineIn } from "./lock/duration.ts";
export type { Election, Elections, Leader } from "./lock/election.ts";
export {
  hasCode,
  LockError,
  LockLostError,
  LockReleasedError,
  LockTimeoutError,
  SessionExpiredError,
  StoreClosedError,
  StoreRefusedError,
  StoreUnavailableError,
  TooManyWaitersError,
  UnknownOutcomeError,
} from "./lock/errors.ts";
export type { LockEvent } from "./lock/events.ts";
export type { Fence } from "./lock/fence.ts";
export {
  compareFence,
  FencedOutError,
  FenceInvalidError,
  openFence,
  sealFence,
} from "./lock/fence.ts";
export type {
  Held,
  HolderInfo,
  Lock,
  LockInfo,
  LockOptions,
  LockSet,
  LockStore,
  StoreTraits,
  WaiterInfo,
} from "./lock/lock.ts";
export type { OpenStore } from "./lock/open-store.ts";
export type { Deadline } from "./lock/time.ts";
