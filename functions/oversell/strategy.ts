/** A way to sell scarce stock: every flaw of the incident is a switch. */
export interface Strategy {
  readonly name: string;

  /** `set-if-absent`: the incident's own lock, a record with an expiry. `lockstep`: a lock of this library. */
  readonly lock: "none" | "set-if-absent" | "lockstep";

  /** Whether giving the lock back deletes whatever is there, or only what is ours. */
  readonly release: "unconditional" | "owner-checked";

  /** Whether the lock is renewed while the work goes on. */
  readonly renewal: boolean;

  /** Where the holder's fence is checked: nowhere, with the write, or before the first read as well. */
  readonly fence: "none" | "on-write" | "claimed";

  /**
   * `get-and-compare`: read, look whether it is enough, write the difference.
   * `compare-then-decrement`: read, look whether it is enough, subtract.
   * `conditional-decrement`: subtract if it is enough, in one statement.
   */
  readonly stock: "get-and-compare" | "compare-then-decrement" | "conditional-decrement";

  /** Whether a sale is recorded under its order's id, once. */
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

/** From the incident to what this library does, one repair after the other. */
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

/** Late writes are harmless, and every order counts once: then nothing can be oversold, lost or duplicated. */
export function claimsSafe({ fence, stock, operationIds }: Strategy): boolean {
  return operationIds && (fence === "claimed" || stock === "conditional-decrement");
}

/** Whether the stock is kept by the library's inventory, or by hand as in the incident. */
export function keptBy({ stock, operationIds }: Strategy): "by-inventory" | "by-hand" {
  return stock === "conditional-decrement" && operationIds ? "by-inventory" : "by-hand";
}

/** Throws a RangeError for switches that do not go together. */
export function checkStrategy({
  lock,
  release,
  renewal,
  fence,
  stock,
  operationIds,
}: Strategy): void {
  const ours = lock === "lockstep";
  if (ours && release === "unconditional") {
    throw new RangeError("a lockstep lock is always released owner-checked");
  }
  if (!ours && renewal) throw new RangeError("renewal needs the lock lockstep");
  if (!ours && fence !== "none") throw new RangeError("a fence needs the lock lockstep");
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
