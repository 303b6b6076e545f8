import type { Claims } from "../../core/lock/claims.ts";
import { StoreUnavailableError, UnknownOutcomeError } from "../../core/lock/errors.ts";
import { type Memory, memoryClaims } from "../../core/stores/memory/locks.ts";

export type Call = "claim" | "renew" | "drop" | "freeIn";
export type Over = <T>(call: Call, work: () => Promise<T>, signal: AbortSignal) => Promise<T>;

/** Returns claims on a memory that make each call through `over`. */
export function wrap(memory: Memory, over: Over): Claims {
  const claims = memoryClaims(memory);
  return {
    ...claims,
    claim: (claim, signal) => over("claim", () => claims.claim(claim, signal), signal),
    renew: (names, owner, ttl, signal, next) =>
      over("renew", () => claims.renew(names, owner, ttl, signal, next), signal),
    drop: (names, owner, signal) => over("drop", () => claims.drop(names, owner, signal), signal),
    freeIn: (names, signal) => over("freeIn", () => claims.freeIn(names, signal), signal),
  };
}

export const lost = () => new UnknownOutcomeError("the wire", "it was done");
export const down = () => new StoreUnavailableError("the wire", "down");
