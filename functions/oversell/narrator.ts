import type { Handling, Observations } from "./observations.ts";
import { hasSharedLock, type Strategy } from "./strategy.ts";
import type { Interval, TraceEvent } from "./trace.ts";

export interface Grant extends Interval {
  readonly worker: number;
  readonly token: string | undefined;

  /** Whether the lock expired while its holder still believed that it had it. */
  readonly hasExpired: boolean;
}

export interface StockPoint {
  readonly at: number;

  /** The stock as the shop recorded it. */
  readonly recorded: number;

  /** The stock that is left after all sales: below zero if units were oversold. */
  readonly left: number;
}

/** A moment of the replay in one sentence. */
export interface Frame {
  readonly at: number;
  readonly worker: number;
  readonly text: string;

  /** Whether the moment is decisive: a lock expires, a second holder, a late write, an oversold unit. */
  readonly isKey: boolean;
}

export interface Step extends TraceEvent {
  readonly handling: Handling;
}

/** Follows a replay: the holder of the lock according to the store, the stock, and a sentence for each moment. */
export class Narrator {
  readonly frames: Frame[] = [];
  readonly grants: Grant[] = [];
  readonly curve: StockPoint[];

  /** Leaves out the digits that all fences begin with, when fences are long. */
  readonly shorten: (token: string) => string;
  readonly #strategy: Strategy;

  /** Whether the processes share the lock. */
  readonly #isShared: boolean;
  readonly #stock: number;
  readonly #ttl: number;
  readonly #nameOf: (handling: Handling) => string;

  /** The workers that consider themselves the holder. */
  readonly #believers = new Set<Handling>();
  readonly #read = new Map<Handling, number>();

  /** The orders whose unit is subtracted before the sale is recorded. */
  readonly #took = new Set<Handling>();
  #holder: { handling: Handling; since: number; until: number } | undefined;
  #newestClaim: Handling | undefined;
  #recorded: number;
  #sold = 0;

  constructor({ strategy, stock, ttlMillis, handlings }: Observations) {
    this.#strategy = strategy;
    this.#isShared = hasSharedLock(strategy);
    this.#stock = stock;
    this.#ttl = ttlMillis;
    this.#recorded = stock;
    this.curve = [{ at: 0, recorded: stock, left: stock }];
    this.shorten = tokenShortener(handlings);
    this.#nameOf = (handling) => {
      const token = tokenOf(handling);
      const process = `Process ${handling.worker + 1}`;
      return token === undefined ? process : `${process} (fence ${this.shorten(token)})`;
    };
  }

  tell(step: Step): void {
    this.#expire(step.at);
    const { handling, at, type } = step;
    // A sale that shows its fence claims the stock, too.
    const isAccepted = ["claimed", "sold", "replayed", "sold-out"].includes(type);
    if (isAccepted && this.#strategy.fence !== "none") this.#newestClaim = handling;
    const frame = this.#frameOf(step);
    if (frame) this.frames.push({ at, worker: handling.worker, isKey: false, ...frame });
  }

  finish(at: number): void {
    this.#expire(at);
    this.#end(at);
  }

  #frameOf(step: Step): { readonly text: string; readonly isKey?: boolean } | undefined {
    const { type, at, handling, stock } = step;
    const name = this.#nameOf(handling);
    switch (type) {
      case "asks":
      case "calls":
        return undefined;
      case "holds": {
        const [other] = this.#believers;
        this.#believers.add(handling);
        if (!this.#isShared) {
          const company = other ? ` ${this.#nameOf(other)} holds one of its own, too.` : "";
          return { text: `${name} takes the lock of its own process.${company}` };
        }
        this.#grant(handling, at);
        return other
          ? {
              text: `${name} gets the lock. ${this.#nameOf(other)} still believes that it has it.`,
              isKey: true,
            }
          : { text: `${name} gets the lock.` };
      }
      case "identified": {
        const waited = at - (handling.trace.find((one) => one.type === "calls")?.at ?? at);
        if (waited < this.#ttl / 2) return undefined;
        const isLate = this.#isShared && this.#holder?.handling !== handling;
        return {
          text: `The identity service answers ${lower(name)} after ${seconds(waited)}.${isLate ? " Its lock is gone, and it does not notice." : ""}`,
          isKey: isLate,
        };
      }
      case "claimed":
        return { text: `${name} claims the stock: older fences are refused from now on.` };
      case "reads":
        this.#read.set(handling, stock ?? 0);
        return { text: `${name} reads the stock: ${stock} left.` };
      case "takes":
        return this.#take(step, name);
      case "freezes":
        this.#limit(handling, at + this.#ttl);
        return { text: `${name} is frozen.`, isKey: true };
      case "wakes": {
        const newer = this.#newerClaim(handling);
        if (this.#holder?.handling === handling) this.#limit(handling, Number.POSITIVE_INFINITY);
        return {
          text: `${name} wakes and goes on where it was.${newer ? ` ${this.#nameOf(newer)} has claimed the stock meanwhile.` : ""}`,
          isKey: true,
        };
      }
      case "sold":
        return this.#sell(step, name);
      case "replayed":
        return {
          text: `${name} repeats a sale. The stock has it already, and changes nothing.`,
          isKey: true,
        };
      case "sold-out":
        return { text: `${name} finds nothing left.` };
      case "refused": {
        const newer = this.#newerClaim(handling);
        const seen = newer ? ` ${this.#nameOf(newer)} has claimed the stock.` : "";
        return { text: `${name} writes late.${seen} Refused.`, isKey: true };
      }
      case "releases":
        return this.#release(handling, at, name);
      case "dies":
        if (this.#strategy.lock === "setnx-then-expire" && !this.#believers.has(handling)) {
          this.#grant(handling, at, Number.POSITIVE_INFINITY);
          return {
            text: `${name} is killed between SETNX and EXPIRE. Its lock stays for ever.`,
            isKey: true,
          };
        }
        this.#believers.delete(handling);
        if (!this.#isShared) return { text: `${name} is killed.`, isKey: true };
        this.#limit(handling, at + this.#ttl);
        return { text: `${name} is killed. Its lock stays until it expires.`, isKey: true };
    }
  }

  #take({ at, handling, stock = 0 }: Step, name: string) {
    if (stock < 0) return { text: `${name} subtracts a unit, and adds it again: none was left.` };
    this.#took.add(handling);
    this.#recorded = stock;
    this.curve.push({ at, recorded: stock, left: this.#stock - this.#sold });
    return { text: `${name} subtracts a unit: ${stock} left.` };
  }

  #sell({ at, handling, stock }: Step, name: string) {
    const before = this.#recorded;
    const hasTaken = this.#took.has(handling);
    this.#sold += 1;
    this.#recorded = stock ?? before - (hasTaken ? 0 : 1);
    const left = this.#stock - this.#sold;
    this.curve.push({ at, recorded: this.#recorded, left });
    const read = this.#read.get(handling);
    const isStale = stock !== undefined && read !== undefined && read !== before;
    const subtracts = hasTaken ? "the sale is recorded" : "one unit is subtracted";
    const change = stock === undefined ? subtracts : `writes ${stock}`;
    const lost = (read ?? before) - before;
    // A late write may also have raised the stock meanwhile.
    const forgotten =
      lost > 0 ? `: ${lost === 1 ? "a sale is" : `${lost} sales are`} forgotten` : "";
    const sale = isStale
      ? `${name} sells: it read ${read}, and writes ${stock}. The stock was at ${before} by then${forgotten}.`
      : `${name} sells, and ${change}.`;
    const over =
      left < 0 ? ` So far, ${-left} sold that ${left === -1 ? "does" : "do"} not exist.` : "";
    return { text: `${sale}${over}`, isKey: isStale || left < 0 };
  }

  #release(handling: Handling, at: number, name: string) {
    this.#believers.delete(handling);
    if (!this.#isShared) return { text: `${name} releases the lock of its own process.` };
    const holder = this.#holder?.handling;
    if (holder === handling) {
      this.#end(at);
      return { text: `${name} releases the lock.` };
    }
    if (this.#strategy.release === "unconditional" && holder) {
      this.#end(at);
      return {
        text: `${name} deletes the lock, which belongs to ${lower(this.#nameOf(holder))} by now.`,
        isKey: true,
      };
    }
    return { text: `${name} has no lock to release any more.` };
  }

  #grant(handling: Handling, at: number, span = this.#ttl): void {
    this.#end(at, "expiry");
    const until = this.#strategy.renewal ? Number.POSITIVE_INFINITY : at + span;
    this.#holder = { handling, since: at, until };
  }

  /** The handling that has claimed the stock with a newer fence. */
  #newerClaim(handling: Handling): Handling | undefined {
    const newest = this.#newestClaim;
    return newest && isNewer(tokenOf(newest), tokenOf(handling)) ? newest : undefined;
  }

  #limit(handling: Handling, until: number): void {
    if (
      this.#holder?.handling === handling &&
      (this.#strategy.renewal || until < this.#holder.until)
    )
      this.#holder.until = until;
  }

  #expire(now: number): void {
    const holder = this.#holder;
    if (!holder || holder.until > now) return;
    this.#end(holder.until, "expiry");
    if (!this.#believers.has(holder.handling)) return;
    this.frames.push({
      at: holder.until,
      worker: holder.handling.worker,
      text: `The lock of ${lower(this.#nameOf(holder.handling))} expires. Its holder does not notice.`,
      isKey: true,
    });
  }

  #end(at: number, reason?: "expiry"): void {
    if (!this.#holder) return;
    const { handling, since, until } = this.#holder;
    const { worker } = handling;
    const to = Math.min(at, until);
    // A release ends the belief first, and a deletion is no expiry.
    const hasExpired = reason === "expiry" && this.#believers.has(handling);
    this.grants.push({ worker, from: since, to, token: tokenOf(handling), hasExpired });
    this.#holder = undefined;
  }
}

/** Returns a function that leaves out the digits that all tokens begin with, when tokens are long. */
function tokenShortener(handlings: readonly Handling[]): (token: string) => string {
  const tokens = handlings.flatMap((handling) => tokenOf(handling) ?? []);
  const [first = ""] = tokens;
  let shared = 0;
  while (
    shared < first.length - 3 &&
    tokens.every((one) => one.startsWith(first.slice(0, shared + 1)))
  )
    shared += 1;
  return (token) => (first.length > 6 ? `…${token.slice(shared)}` : token);
}

function lower(name: string): string {
  return name.replace("Process", "process");
}

function seconds(millis: number): string {
  return `${(millis / 1_000).toFixed(2)} s`;
}

/** Whether a fencing token is newer than another one. */
export function isNewer(token: string | undefined, other: string | undefined): boolean {
  return token !== undefined && other !== undefined && BigInt(token) > BigInt(other);
}

/** The token of the lock under which an order was handled. */
export function tokenOf({ trace }: Handling): string | undefined {
  return trace.find(({ type }) => type === "holds")?.token;
}
