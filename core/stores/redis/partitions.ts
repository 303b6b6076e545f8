import type { InventoryBackend, StockPage } from "../../inventory/backend.ts";
import { stockLock } from "../../inventory/inventory.ts";
import { checkWhole } from "../../lock/checks.ts";
import type { Claims } from "../../lock/claims.ts";
import { quote } from "../../lock/errors.ts";

/** Parts of a store by the names that they serve. */
export class Partitions<Part> {
  readonly all: readonly [Part, ...Part[]];

  private constructor(all: readonly Part[]) {
    this.all = all as readonly [Part, ...Part[]];
  }

  static make<Part>(count: number, make: (part: string) => Part): Partitions<Part> {
    checkWhole("partitions", count, 1, 1_024);
    return new Partitions(Array.from({ length: count }, (_, i) => make(`${i + 1}of${count}`)));
  }

  map<Other>(change: (part: Part) => Other): Partitions<Other> {
    return new Partitions(this.all.map(change));
  }

  /** Returns the part of a lock, a resource or a sku: a sku is with its lock. */
  of(name: string): Part {
    const part = this.all[hash(spreadBy(name)) % this.all.length];
    return part as Part;
  }

  /** Returns the part of all names. Throws a RangeError when they are in several. */
  ofAll(names: readonly string[]): Part {
    const [part = this.all[0], ...others] = names.map((name) => this.of(name));
    if (others.every((other) => other === part)) return part;
    throw new RangeError(
      `the locks ${quote(...names)} are in several partitions of the store, and cannot be taken together; ` +
        "names with the same text in braces, such as {order-7}/a and {order-7}/b, are in one",
    );
  }
}

/** Returns the text that decides over the partition: the one in the first braces, else the name. */
function spreadBy(name: string): string {
  const [, tag] = /\{([^}]+)\}/.exec(name) ?? [];
  return tag ?? name.replace(/^sku\//, "");
}

/** FNV-1a. All processes, of whatever version, must agree. */
function hash(text: string): number {
  let value = 0x811c9dc5;
  for (const byte of new TextEncoder().encode(text)) {
    value = Math.imul(value ^ byte, 0x01000193) >>> 0;
  }
  return value;
}

/** Locks in several partitions. A call for names in more than one throws a RangeError before any request. */
export function partitionedClaims(parts: Partitions<Claims>): Claims {
  const [first] = parts.all;
  return {
    traits: first.traits,
    ...(first.wakeUps && { wakeUps: first.wakeUps }),
    claim: (claim, signal) => parts.ofAll(claim.names).claim(claim, signal),
    renew: (names, ...rest) => parts.ofAll(names).renew(names, ...rest),
    drop: (names, owner, signal) => parts.ofAll(names).drop(names, owner, signal),
    freeIn: (names, signal) => parts.ofAll(names).freeIn(names, signal),
    waitForTurn: (names, owner) => {
      const part = parts.ofAll(names);
      return part.waitForTurn?.(names, owner) as ReturnType<NonNullable<Claims["waitForTurn"]>>;
    },
    onRelease: (name, listener) =>
      parts.of(name).onRelease?.(name, listener) ?? { isActive: false, stop: () => {} },
    inspect: (name) => parts.of(name).inspect(name),
    async list(prefix) {
      const lists = await Promise.all(parts.all.map((part) => part.list(prefix)));
      return lists.flat().sort((a, b) => (a.name < b.name ? -1 : 1));
    },
    async raiseGeneration(least) {
      const raised = await Promise.all(parts.all.map((part) => part.raiseGeneration(least)));
      const highest = Math.max(...raised);
      const lower = parts.all.filter((_, i) => raised[i] !== highest);
      await Promise.all(lower.map((part) => part.raiseGeneration(highest)));
      return highest;
    },
    async close() {
      await Promise.all(parts.all.map((part) => part.close()));
    },
  };
}

type PartitionStore = Omit<InventoryBackend, "apply">;

/** Stock in several partitions. An operation id is known in the partition of its sku alone. */
export function partitionedStock(parts: Partitions<PartitionStore>): PartitionStore {
  const of = (sku: string) => parts.of(stockLock(sku));
  return {
    address: parts.all[0].address,
    get: (sku) => of(sku).get(sku),
    async list(page: StockPage) {
      const lists = await Promise.all(parts.all.map((part) => part.list(page)));
      const levels = lists.flat().sort((a, b) => (a.sku < b.sku ? -1 : 1));
      return levels.slice(0, page.limit);
    },
    applyMany: (batch, signal) => of(batch.sku).applyMany(batch, signal),
    expire: (sku) => of(sku).expire(sku),
    history: (sku, page) => of(sku).history(sku, page),
    reservations: (sku, limit) => of(sku).reservations(sku, limit),
    claim: (fence) => parts.of(fence.resource).claim(fence),
  };
}
