import { StoreUnavailableError, UnknownOutcomeError } from "../../core/lock/errors.ts";
import type { Session, ZooKeeper } from "../../core/zookeeper/zookeeper.ts";

/**
 * What may happen to a request. `answer-lost`: carried out. `request-lost`: not carried out. `refused`: certainly
 * not carried out.
 */
export type Fault = "answer-lost" | "request-lost" | "refused";

export const FAULTS: readonly Fault[] = ["answer-lost", "request-lost", "refused"];

const CALLS = ["create", "remove", "write", "read", "children", "sync", "multi"] as const;

export type CallName = (typeof CALLS)[number];

const WRITES: readonly CallName[] = ["create", "remove", "write", "multi"];

export interface FaultyZooKeeper {
  readonly zookeeper: ZooKeeper;

  /** The requests made so far, of all sessions. */
  readonly calls: readonly CallName[];

  /** Asked before each request, which is the n-th one, from 1. Default: no faults. */
  decide: (call: CallName, n: number) => Fault | undefined;

  /** Told after each request that was answered. */
  answered: (call: CallName, n: number) => void;
}

/** A client whose requests go wrong as told. Reads are only ever refused: sessions ask for them again. */
export function faulty(inner: ZooKeeper): FaultyZooKeeper {
  const calls: CallName[] = [];
  const control: FaultyZooKeeper = {
    zookeeper: {
      address: inner.address,
      openSession: async (ttl, signal) => wrap(await inner.openSession(ttl, signal)),
      close: () => inner.close(),
      [Symbol.asyncDispose]: () => inner.close(),
    },
    calls,
    decide: () => undefined,
    answered: () => {},
  };
  const faultyCall = (session: Session, name: CallName) => {
    const call = session[name].bind(session) as (...args: unknown[]) => Promise<unknown>;
    return async (...args: unknown[]) => {
      const n = calls.push(name);
      const fault = control.decide(name, n);
      if (fault === undefined) {
        const answer = await call(...args);
        control.answered(name, n);
        return answer;
      }
      const refused = new StoreUnavailableError("a faulty zookeeper", "as told");
      if (fault === "refused" || !WRITES.includes(name)) throw refused;
      if (fault === "answer-lost") await call(...args);
      throw new UnknownOutcomeError("a faulty zookeeper", "a request was carried out");
    };
  };
  const wrap = (session: Session): Session => {
    const wrapped = CALLS.map((name) => [name, faultyCall(session, name)] as const);
    const changed: Partial<Record<string | symbol, unknown>> = Object.fromEntries(wrapped);
    return new Proxy(session, {
      get(target, name) {
        const value = changed[name] ?? Reflect.get(target, name, target);
        return typeof value === "function" && !(name in changed) ? value.bind(target) : value;
      },
    });
  };
  return control;
}
