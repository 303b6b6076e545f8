/** A way to sell scarce stock. Each flaw of the incident is a switch. */
export interface Strategy {
  readonly name: string;

  /** `set-if-absent`: the incident's lock, a record with an expiry. `lockstep`: a lock of this library. */
  readonly lock: "none" | "set-if-absent" | "lockstep";

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
   */
  readonly stock: "get-and-compare" | "compare-then-decrement" | "conditional-decrement";

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
  { ...INCIDENT, name: "no-lock", lock: "none", stock: "compare-then-decrement" },
  { ...INCIDENT, name: "owner-checked", release: "owner-checked" },
  { ...LOCKED, name: "renewed", renewal: true, operationIds: true },
  { ...LOCKED, name: "fence-on-write", renewal: true, operationIds: true, fence: "on-write" },
  { ...LOCKED, name: "fence-claimed", renewal: true, operationIds: true, fence: "claimed" },
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

/** Whether a strategy guarantees that no unit is oversold, lost or duplicated: late writes are refused, orders count once. */
export function claimsSafe({ fence, stock, operationIds }: Strategy): boolean {
  return operationIds && (fence === "claimed" || stock === "conditional-decrement");
}

/** Whether the library's inventory manages the stock, or the shop by hand as in the incident. */
export function stockKeeper({ stock, operationIds }: Strategy): "by-inventory" | "by-hand" {
  return stock === "conditional-decrement" && operationIds ? "by-inventory" : "by-hand";
}

/** Throws a RangeError for incompatible switches. */
export function checkStrategy({
  lock,
  release,
  renewal,
  fence,
  stock,
  operationIds,
}: Strategy): void {
  const isLockstep = lock === "lockstep";
  if (isLockstep && release === "unconditional") {
    throw new RangeError("a lockstep lock is always released owner-checked");
  }
  if (!isLockstep && renewal) throw new RangeError("renewal needs the lock lockstep");
  if (!isLockstep && fence !== "none") throw new RangeError("a fence needs the lock lockstep");
  if (fence !== "none" && stock === "compare-then-decrement") {
    throw new RangeError("compare-then-decrement checks no fence");
  }
  if (fence !== "none" && stock === "conditional-decrement" && !operationIds) {
    throw new RangeError("a fenced conditional-decrement comes with operation ids");
  }
  if (fence === "on-write" && stock === "conditional-decrement") {
    throw new RangeError("a conditional-decrement claims its fence");
  }
}
