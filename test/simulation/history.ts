import { asNumber, asText, type Row, type Sql } from "../../core/database/sql.ts";
import type { Operation } from "../../core/inventory/operation.ts";
import { compareFence, type Fence, fenceOwner } from "../../core/lock/fence.ts";
import type { Lock, LockSet } from "../../core/lock/lock.ts";

/** The guarantees that each schedule is checked for. What breaks an earlier one tells more. */
export const CHECKS = [
  "token order",
  "release by the owner",
  "validity",
  "nothing held after a failed acquire",
  "late write",
  "late holder",
  "lost update",
  "stock",
  "once per operation id",
  "once per transaction",
  "at most once",
  "one history of a run",
  "undone",
  "cancelled",
  "no work after the end",
  "known errors",
  "progress",
] as const;

export type Check = (typeof CHECKS)[number];

export interface Violation {
  readonly check: Check;
  readonly detail: string;
}

export interface Acquisition {
  readonly client: string;
  readonly fence: Fence;
  readonly invokedAt: number;
  readonly at: number;
}

/** The end of one call for a change of stock. `refused`: the error proves that it was not applied. */
export interface Attempt {
  readonly change: Pick<Operation, "kind" | "sku" | "quantity"> & {
    readonly reservation?: string | undefined;
    readonly expiresIn?: number;
  };
  readonly fence: Fence | undefined;
  end: "applied" | "sold-out" | "closed" | "conflict" | "refused" | "unknown" | "none";
  remaining?: number;
}

/** A lock at the store, and its owner, if it has one. */
export interface Owned {
  readonly name: string;
  readonly owner: string | undefined;
}

interface Held {
  readonly owner: string;
  readonly expiresAt: number;
}

/** What the clients and the store have seen, and the checks that need no end. */
export class History {
  readonly violations: Violation[] = [];
  readonly acquisitions: Acquisition[] = [];

  /** By operation id. */
  readonly attempts = new Map<string, Attempt[]>();

  /** Acknowledged claims and writes: from this time of the store on, lower fences are late. */
  readonly claims: { readonly fence: Fence; readonly at: number }[] = [];

  /** The fences of claims and writes that were refused for being late. */
  readonly refused: Fence[] = [];

  /** Acquisitions while another client still took itself for the holder. */
  overlaps = 0;
  readonly #locks = new Map<string, Held>();
  readonly #owners = new Map<string, string | undefined>();

  /** The values of requests that came twice. What such a request finds later, its first answer did not know. */
  readonly repeated = new Set<unknown>();

  /** The owners that a DELETE named. A claim that comes later is held until it expires. */
  readonly #dropped = new Set<unknown>();
  readonly #believers = new Map<string, Set<object>>();

  readonly violate = (check: Check, detail: string): void => {
    this.violations.push({ check, detail });
  };

  /**
   * Compares the locks with those before the statements, which may remove or replace only what they own. Returns those that
   * have another owner now.
   */
  onLocks(rows: readonly Row[], statements: readonly Sql[], now: number): readonly Owned[] {
    const found = new Map(
      rows.map(({ name, owner, expires_at }) => [
        asText(name),
        { owner: asText(owner), expiresAt: asNumber(expires_at) },
      ]),
    );
    for (const [name, { owner, expiresAt }] of this.#locks) {
      const after = found.get(name);
      if (expiresAt <= now) continue;
      const isChanged = after?.owner !== owner || after.expiresAt !== expiresAt;
      if (isChanged && !statements.some(({ values }) => values.includes(owner))) {
        const what = after ? `is changed by ${shorten(after.owner)}` : "is released by another one";
        this.violate("release by the owner", `${name} of ${shorten(owner)} ${what}`);
      } else if (after?.owner === owner && after.expiresAt < expiresAt) {
        this.violate("validity", `${name} of ${shorten(owner)} ends earlier than granted`);
      }
    }
    for (const { texts, values } of statements) {
      if (texts[0]?.includes("DELETE")) for (const value of values) this.#dropped.add(value);
    }
    this.#locks.clear();
    for (const [name, held] of found) this.#locks.set(name, held);
    return this.#changedOwners(now);
  }

  #changedOwners(now: number): readonly Owned[] {
    const changed: Owned[] = [];
    for (const name of new Set([...this.#owners.keys(), ...this.#locks.keys()])) {
      const held = this.#locks.get(name);
      const owner = held && held.expiresAt > now ? held.owner : undefined;
      if (owner === this.#owners.get(name)) continue;
      this.#owners.set(name, owner);
      changed.push({ name, owner });
    }
    return changed;
  }

  /** Returns the fence that a client was told for the lock of this owner. */
  fenceOf({ name, owner }: Owned): Fence | undefined {
    const found = this.acquisitions.find(
      ({ fence }) => fence.resource === name && owner?.startsWith(fenceOwner(fence) ?? ""),
    );
    return found?.fence;
  }

  /** Whether the store has a lock of this name for the owner. */
  isHeldBy(fence: Fence, now: number): boolean {
    const held = this.#locks.get(fence.resource);
    return held?.owner.startsWith(fenceOwner(fence) ?? "") === true && held.expiresAt > now;
  }

  /** The owners of the client's locks that no request has dropped. */
  undroppedOf(client: string, now: number): readonly string[] {
    return [...this.#locks.values()]
      .filter(({ expiresAt }) => expiresAt > now)
      .map(({ owner }) => owner)
      .filter((owner) => owner.startsWith(`${client}/`))
      .filter((owner) => !this.#dropped.has(owner) && !this.repeated.has(owner));
  }

  acquired(client: string, lock: Lock | LockSet, invokedAt: number, at: number): void {
    const fences = "fences" in lock ? [...lock.fences.values()] : [lock.fence];
    for (const fence of fences) {
      this.acquisitions.push({ client, fence, invokedAt, at });
      const believers = this.#believers.get(fence.resource) ?? new Set();
      if (believers.size > 0) this.overlaps += 1;
      this.#believers.set(fence.resource, believers.add(lock));
      lock.signal.addEventListener("abort", () => believers.delete(lock));
    }
  }

  /** Forgets what a crashed client believed. */
  forget(lock: object): void {
    for (const believers of this.#believers.values()) believers.delete(lock);
  }

  attempt(id: string, change: Attempt["change"], fence: Fence | undefined): Attempt {
    const attempt: Attempt = { change, fence, end: "none" };
    this.attempts.set(id, [...(this.attempts.get(id) ?? []), attempt]);
    return attempt;
  }

  /** Checks that tokens differ, and follow the order of acquisitions that do not overlap. */
  checkTokens(): void {
    for (const a of this.acquisitions) {
      for (const b of this.acquisitions) {
        if (a === b || a.fence.resource !== b.fence.resource) continue;
        const order = compareFence(a.fence, b.fence);
        if (order === 0) this.violate("token order", `${a.client} and ${b.client} have one token`);
        if (order > 0 && a.at < b.invokedAt) {
          const late = `${b.client} came after ${a.client}, and has a lower token`;
          this.violate("token order", late);
        }
      }
    }
  }
}

function shorten(owner: string): string {
  return owner.slice(0, owner.indexOf("/") + 5);
}
