import { StoreUnavailableError, UnknownOutcomeError } from "../../core/lock/errors.ts";
import type { Etcd, LeaseId } from "../../core/stores/etcd/client/etcd.ts";

/**
 * The fault of a call. `answer-lost`: executed. `request-lost`: not executed. `late`: executed by
 * `deliver`, after the caller was told that the outcome is unknown. `refused`: certainly not executed.
 */
export type Fault = "answer-lost" | "request-lost" | "late" | "refused";

export const FAULTS: readonly Fault[] = ["answer-lost", "request-lost", "late", "refused"];

const CALLS = ["txn", "range", "grant", "revoke", "keepAlive", "timeToLive"] as const;

export type CallName = (typeof CALLS)[number];

export interface FaultyEtcd {
  readonly etcd: Etcd;

  /** The calls made so far. */
  readonly calls: readonly CallName[];

  /** The number of active watches, and of notifications. */
  readonly watches: { standing: number; told: number };

  /** The ids of all requested leases. */
  readonly leases: readonly LeaseId[];

  /** Decides the fault of each call, the n-th one from 1. Default: no faults. */
  decide: (call: CallName, n: number, args: readonly unknown[]) => Fault | undefined;

  /** Called after each answered call. */
  answered: (call: CallName, n: number) => void;

  /** Carries out the late calls. */
  deliver(): Promise<void>;
}

/** Makes a client with injected faults. Watches are only counted. */
export function faulty(inner: Etcd): FaultyEtcd {
  const calls: CallName[] = [];
  const leases: LeaseId[] = [];
  const late: (() => Promise<unknown>)[] = [];
  const watches = { standing: 0, told: 0 };
  const watch: Etcd["watch"] = (keys, { ready, changed }) => {
    let stands = false;
    const stop = inner.watch(keys, {
      ready: (revision) => {
        watches.standing += stands ? 0 : 1;
        stands = true;
        ready(revision);
      },
      changed: (changes) => {
        watches.told += 1;
        changed(changes);
      },
    });
    return () => {
      watches.standing -= stands ? 1 : 0;
      stands = false;
      stop();
    };
  };
  const wrap = (name: CallName) => {
    const call = inner[name].bind(inner) as (...args: unknown[]) => Promise<unknown>;
    return async (...args: unknown[]) => {
      const n = calls.push(name);
      if (name === "grant") leases.push(args[0] as LeaseId);
      const fault = control.decide(name, n, args);
      if (fault === undefined) {
        const answer = await call(...args);
        control.answered(name, n);
        return answer;
      }
      if (fault === "answer-lost") await call(...args);
      if (fault === "late") late.push(() => call(...args));
      const reads = name === "range" || name === "timeToLive" || fault === "refused";
      throw reads
        ? new StoreUnavailableError("a faulty etcd", "as told")
        : new UnknownOutcomeError("a faulty etcd", "a request was executed");
    };
  };
  const control: FaultyEtcd = {
    etcd: {
      address: inner.address,
      watch,
      close: inner.close.bind(inner),
      [Symbol.asyncDispose]: inner.close.bind(inner),
      ...(Object.fromEntries(CALLS.map((name) => [name, wrap(name)])) as Pick<Etcd, CallName>),
    },
    calls,
    watches,
    leases,
    decide: () => undefined,
    answered: () => {},
    deliver: async () => void (await Promise.allSettled(late.splice(0).map((call) => call()))),
  };
  return control;
}
