/** Locks with fences: the contract, its errors, and what one builds a store from. */
export type { LockErrorCode, LossReason } from "./lock/errors.ts";
export {
  FencedOutError,
  FenceInvalidError,
  hasCode,
  LockError,
  LockLostError,
  LockTimeoutError,
  SessionExpiredError,
  StoreClosedError,
  StoreRefusedError,
  StoreUnavailableError,
  TooManyWaitersError,
  UnknownOutcomeError,
} from "./lock/errors.ts";
export type { LockEvent, LockListener } from "./lock/events.ts";
export type { Fence } from "./lock/fence.ts";
export { checkFence, compareFence, openFence, sealFence } from "./lock/fence.ts";
export type {
  Held,
  Lock,
  LockInfo,
  LockOptions,
  LockSet,
  LockStore,
  StoreTraits,
  TryLockOptions,
  Unlocked,
} from "./lock/lock.ts";
export type { Claim, Claims, Token } from "./lock/polling.ts";
export { pollingStore, type StoreOptions } from "./lock/store.ts";
export { type Deadline, deadlineIn, type Millis } from "./lock/time.ts";
