import { parseStoreUrl } from "../../infra/store-url.ts";

/** A way to sell scarce stock. Each flaw of the incident is a switch. */
export interface Strategy {
  readonly name: string;

  /**
   * `set-if-absent`: the incident's lock, a record with an expiry.
   * `setnx-then-expire`: the same in two commands, in Redis.
   * `in-process`: a mutex in the memory of each process, which no other process sees.
   * `lockstep`: a lock of this library.
   */
  readonly lock: "none" | "set-if-absent" | "setnx-then-expire" | "in-process" | "lockstep";

  /** Whether a release deletes the lock of any owner, or only the caller's own. */
  readonly release: "unconditional" | "owner-checked";

  /** Whether the lock is renewed during the work. */
  readonly renewal: boolean;

  /** Whether the fence is checked: never, with the write, or also before the first read. */
  readonly fence: "none" | "on-write" | "claimed";

  /**
   * `get-and-compare`: read the stock, compare, write the difference.
   * `compare-then-decrement`: read the stock, compare, subtract.
   * `conditional-decrement`: subtract if the stock suffices, in one statement.
   * `decr-and-test`: subtract, and add again if the result is below zero, in Redis.
   * `version-column`: read the stock and its version, write the difference if the version is still the same, in SQL.
   * `select-for-update`: read the stock under the lock of its row, write the difference, on a SQL server.
   */
  readonly stock:
    | "get-and-compare"
    | "compare-then-decrement"
    | "conditional-decrement"
    | "decr-and-test"
    | "version-column"
    | "select-for-update";

  /** Whether a sale is recorded once, under its order's id. */
  readonly operationIds: boolean;
}

const INCIDENT: Strategy = {
  name: "as-in-the-incident",
  lock: "set-if-absent",
  release: "unconditional",
  renewal: false,
  fence: "none",
  stock: "get-and-compare",
  operationIds: false,
};

const LOCKED: Strategy = { ...INCIDENT, lock: "lockstep", release: "owner-checked", name: "" };

/** The strategies, from the incident to this library, one repair after another. */
export const STRATEGIES: readonly Strategy[] = [
  INCIDENT,
  { ...INCIDENT, name: "setnx-then-expire", lock: "setnx-then-expire" },
  { ...INCIDENT, name: "no-lock", lock: "none", stock: "compare-then-decrement" },
  { ...INCIDENT, name: "process-lock", lock: "in-process", release: "owner-checked" },
  { ...INCIDENT, name: "owner-checked", release: "owner-checked" },
  { ...LOCKED, name: "renewed", renewal: true, operationIds: true },
  { ...LOCKED, name: "fence-on-write", renewal: true, operationIds: true, fence: "on-write" },
  { ...LOCKED, name: "fence-claimed", renewal: true, operationIds: true, fence: "claimed" },
  { ...INCIDENT, name: "decr-and-test", lock: "none", stock: "decr-and-test" },
  { ...INCIDENT, name: "version-column", lock: "none", stock: "version-column" },
  { ...INCIDENT, name: "select-for-update", lock: "none", stock: "select-for-update" },
  { ...INCIDENT, name: "decrement", lock: "none", stock: "conditional-decrement" },
  {
    ...INCIDENT,
    name: "decrement-once",
    lock: "none",
    stock: "conditional-decrement",
    operationIds: true,
  },
  {
    name: "lockstep",
    lock: "lockstep",
    release: "owner-checked",
    renewal: true,
    fence: "claimed",
    stock: "conditional-decrement",
    operationIds: true,
  },
];

const REDIS = [
  ...["redis", "rediss", "redis+http", "redis+https"],
  ...["redis+cluster", "rediss+cluster", "redis+sentinel", "rediss+sentinel"],
];
const SQL_SERVERS = ["mysql", "mysqls", "postgres", "postgresql"];

const SQL = ["sqlite", ...SQL_SERVERS];
const ETCD = ["etcd", "etcds", "etcd+http", "etcd+https"];

/** The schemes of the stores that have a lock or a way to change stock. Those that every store has are left out. */
const SCHEMES: Partial<Record<Strategy["lock"] | Strategy["stock"], readonly string[]>> = {
  // ZooKeeper has no records that expire, and Redlock's masters no lock that is a single record.
  "set-if-absent": [...SQL, ...REDIS, ...ETCD, "dynamodb"],
  "setnx-then-expire": REDIS,
  "decr-and-test": REDIS,
  "version-column": SQL,
  "select-for-update": SQL_SERVERS,
};

/** The URLs of the stores of stock and of locks. */
export interface StoreUrls {
  readonly store: string;

  /** Default: the store itself. */
  readonly locks?: string | undefined;
}

/** Whether the stores have the strategy's lock and its way to change stock. */
export function existsOn(strategy: Strategy, urls: StoreUrls): boolean {
  return missingOn(strategy, urls) === undefined;
}

/** Returns the part of a strategy that its store does not have. */
function missingOn({ lock, stock }: Strategy, { store, locks = store }: StoreUrls) {
  const isMissing = (part: keyof typeof SCHEMES, url: string) =>
    SCHEMES[part]?.includes(parseStoreUrl(url).scheme) === false;
  if (isMissing(lock, locks)) return lock;
  return isMissing(stock, store) ? stock : undefined;
}

const SAFE_STOCK: readonly Strategy["stock"][] = [
  "conditional-decrement",
  "version-column",
  "select-for-update",
];

/**
 * Whether a strategy guarantees that no unit is oversold, lost or duplicated, and that no buyer waits for ever: late writes
 * are refused, orders count once.
 */
export function claimsSafe({ lock, fence, stock, operationIds }: Strategy): boolean {
  const isGuarded = fence === "claimed" || SAFE_STOCK.includes(stock);
  return operationIds && isGuarded && lock !== "setnx-then-expire";
}

/** Whether the processes share a lock: a store grants it. */
export function hasSharedLock({ lock }: Strategy): boolean {
  return lock !== "none" && lock !== "in-process";
}

/** Whether the library's inventory manages the stock, or the shop by hand as in the incident. */
export function stockKeeper({ stock, operationIds }: Strategy): "by-inventory" | "by-hand" {
  return stock === "conditional-decrement" && operationIds ? "by-inventory" : "by-hand";
}

/** Throws a RangeError for incompatible switches, and for those that the store does not have. */
export function checkStrategy(strategy: Strategy, urls: StoreUrls): void {
  const { lock, release, renewal, fence, stock, operationIds } = strategy;
  const missing = missingOn(strategy, urls);
  if (missing !== undefined) {
    const schemes = SCHEMES[missing]?.map((scheme) => `${scheme}:`).join(", ");
    throw new RangeError(`${missing} needs a store of another kind: ${schemes}`);
  }
  const isLockstep = lock === "lockstep";
  if (isLockstep && release === "unconditional") {
    throw new RangeError("a lockstep lock is always released owner-checked");
  }
  if (!isLockstep && renewal) throw new RangeError("renewal needs the lock lockstep");
  if (!isLockstep && fence !== "none") throw new RangeError("a fence needs the lock lockstep");
  if (fence !== "none" && stock !== "get-and-compare" && stock !== "conditional-decrement") {
    throw new RangeError(`${stock} checks no fence`);
  }
  if (stock === "decr-and-test" && operationIds) {
    throw new RangeError("decr-and-test records no operation ids");
  }
  if (fence !== "none" && stock === "conditional-decrement" && !operationIds) {
    throw new RangeError("a fenced conditional-decrement comes with operation ids");
  }
  if (fence === "on-write" && stock === "conditional-decrement") {
    throw new RangeError("a conditional-decrement claims its fence");
  }
}
