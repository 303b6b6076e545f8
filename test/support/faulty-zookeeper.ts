import { StoreUnavailableError, UnknownOutcomeError } from "../../core/lock/errors.ts";
import type {
  NewNode,
  ZooKeeper,
  ZooKeeperSession,
} from "../../core/stores/zookeeper/client/zookeeper.ts";

/**
 * The fault of a request. `answer-lost`: executed. `request-lost`: not executed. `refused`: certainly not executed.
 * `seen-late`: executed, the answer is lost, and the session continues at a server that lags behind: until `sync`, it
 * reads the earlier state.
 */
export type Fault = "answer-lost" | "request-lost" | "refused";
export type AnyFault = Fault | "seen-late";

export const FAULTS: readonly Fault[] = ["answer-lost", "request-lost", "refused"];

const CALLS = ["create", "remove", "write", "read", "children", "sync", "multi"] as const;

export type CallName = (typeof CALLS)[number];

const WRITES: readonly CallName[] = ["create", "remove", "write", "multi"];

export interface FaultyZooKeeper {
  readonly zookeeper: ZooKeeper;

  /** The requests made so far, of all sessions. */
  readonly calls: readonly CallName[];

  /** Decides the fault of each request, the n-th one from 1. Default: no faults. */
  decide: (call: CallName, n: number) => AnyFault | undefined;

  /** Called after each answered request. */
  answered: (call: CallName, n: number) => void;
}

/** Makes a client with injected faults. Reads are only refused: sessions repeat lost ones. */
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
  const faultyCall = (session: ZooKeeperSession, name: CallName, past: Past) => {
    const call = session[name].bind(session) as (...args: unknown[]) => Promise<unknown>;
    return async (...args: unknown[]) => {
      const n = calls.push(name);
      const fault = control.decide(name, n);
      if (name === "sync") past.clear();
      if (fault === undefined) {
        const key = `${name} ${args[0]}`;
        const answer = past.has(key) ? past.get(key) : await call(...args);
        control.answered(name, n);
        return answer;
      }
      const refused = new StoreUnavailableError("a faulty zookeeper", "as told");
      if (fault === "refused" || !WRITES.includes(name)) throw refused;
      if (fault === "seen-late") await remember(session, args[0], past);
      if (fault !== "request-lost") await call(...args);
      throw new UnknownOutcomeError("a faulty zookeeper", "a request was executed");
    };
  };
  const wrap = (session: ZooKeeperSession): ZooKeeperSession => {
    const past: Past = new Map();
    const wrapped = CALLS.map((name) => [name, faultyCall(session, name, past)] as const);
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

/** The answers of a server that lags behind, by the name of the request and its path. */
type Past = Map<string, unknown>;

/** Remembers the state before a write: of a path, a node, or the parts of a transaction. */
async function remember(session: ZooKeeperSession, write: unknown, past: Past): Promise<void> {
  const paths = [write].flat().map((part) => {
    if (typeof part === "string") return part;
    const { path, node } = part as { readonly path?: string; readonly node?: NewNode };
    return path ?? node?.path ?? "";
  });
  for (const path of paths) {
    const parent = path.slice(0, path.lastIndexOf("/"));
    past.set(`read ${path}`, await session.read(path));
    past.set(`children ${parent}`, await session.children(parent || "/"));
  }
}
