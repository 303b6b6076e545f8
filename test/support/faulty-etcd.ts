import type { Etcd, Lease } from "../../core/etcd/etcd.ts";
import { StoreUnavailableError, UnknownOutcomeError } from "../../core/lock/errors.ts";
import { pause } from "./until.ts";

/**
 * What may happen to a call. `answer-lost`: carried out. `request-lost`: not carried out. `late`: carried out
 * a while after the caller was told that nobody knows. `refused`: certainly not carried out.
 */
export type Fault = "answer-lost" | "request-lost" | "late" | "refused";

export const FAULTS: readonly Fault[] = ["answer-lost", "request-lost", "late", "refused"];

const CALLS = ["txn", "range", "grant", "revoke", "keepAlive", "timeToLive"] as const;

export type CallName = (typeof CALLS)[number];

/** By how much a late call is late, in milliseconds. */
export const LATE = 300;

export interface FaultyEtcd {
  readonly etcd: Etcd;

  /** The calls made so far. */
  readonly calls: readonly CallName[];

  /** The ids of all leases that were asked for. */
  readonly leases: readonly Lease[];

  /** Asked before each call, which is the n-th one, from 1. Default: no faults. */
  decide: (call: CallName, n: number) => Fault | undefined;

  /** Told after each call that was answered. */
  answered: (call: CallName, n: number) => void;
}

/** A client whose calls go wrong as told. Watches are left alone. */
export function faulty(inner: Etcd): FaultyEtcd {
  const calls: CallName[] = [];
  const leases: Lease[] = [];
  const wrap = (name: CallName) => {
    const call = inner[name].bind(inner) as (...args: unknown[]) => Promise<unknown>;
    return async (...args: unknown[]) => {
      const n = calls.push(name);
      if (name === "grant") leases.push(args[0] as Lease);
      const fault = control.decide(name, n);
      if (fault === undefined) {
        const answer = await call(...args);
        control.answered(name, n);
        return answer;
      }
      if (fault === "answer-lost") await call(...args);
      if (fault === "late") void pause(LATE).then(() => call(...args).catch(() => {}));
      const reads = name === "range" || name === "timeToLive" || fault === "refused";
      throw reads
        ? new StoreUnavailableError("a faulty etcd", "as told")
        : new UnknownOutcomeError("a faulty etcd", "a request was carried out");
    };
  };
  const control: FaultyEtcd = {
    etcd: {
      address: inner.address,
      watch: inner.watch.bind(inner),
      close: inner.close.bind(inner),
      [Symbol.asyncDispose]: inner.close.bind(inner),
      ...(Object.fromEntries(CALLS.map((name) => [name, wrap(name)])) as Pick<Etcd, CallName>),
    },
    calls,
    leases,
    decide: () => undefined,
    answered: () => {},
  };
  return control;
}
