import type { Millis } from "../lock/time.ts";

/** etcd as everything here uses it: six calls and one to look, over whichever transport. */
export interface Etcd extends AsyncDisposable {
  /** The endpoints, for messages: no secrets. */
  readonly address: string;

  /**
   * All of it or nothing, atomically. At most 128 operations unless the server allows more.
   *
   * Rejects with a StoreUnavailableError or StoreRefusedError only when it has certainly not happened, and
   * with an UnknownOutcomeError when it may have, or may still, unless it only reads; with a NoLeaseError when
   * a lease that it attaches a key to is gone. It is never carried out twice.
   */
  txn(txn: Txn, signal?: AbortSignal): Promise<TxnAnswer>;

  /** A read that sees every write acknowledged before it was asked for. */
  range(get: Get, signal?: AbortSignal): Promise<RangeAnswer>;

  /**
   * A new lease under an id chosen by the caller, from 1 to 2^63 - 1: asking for the same id again is how one
   * finds out about a lost answer. Resolves to the ttl granted, in seconds: never less than asked for.
   *
   * Rejects as `txn` does; with a LeaseExistsError when there is such a lease.
   */
  grant(lease: Lease, ttl: Seconds, signal?: AbortSignal): Promise<Seconds>;

  /** Ends a lease and deletes the keys attached to it. False: there was no such lease. Rejects as `txn` does. */
  revoke(lease: Lease, signal?: AbortSignal): Promise<boolean>;

  /** Starts a lease's ttl anew. Resolves to the ttl, or to undefined: there is no such lease. */
  keepAlive(lease: Lease, signal?: AbortSignal): Promise<Seconds | undefined>;

  /** What is left of a lease, or undefined: there is no such lease. */
  timeToLive(lease: Lease, signal?: AbortSignal): Promise<Seconds | undefined>;

  /**
   * Tells of changes from now on, until the returned function is called. It survives broken connections:
   * each time the watch stands anew, `ready` is called, and what changed before may have gone unseen.
   */
  watch(keys: Keys, watcher: Watcher): () => void;

  /** Ends watches and calls under way, and lets the process exit. Leases run on. Never rejects. */
  close(): Promise<void>;
}

/** Counts the writes of a cluster, from 1. */
export type Revision = bigint;

/** A lease's id; 0 means none. */
export type Lease = bigint;

/** The unit of leases: whole seconds. */
export type Seconds = number;

/** One key, or all that start with a prefix. The prefix "" means all keys there are. */
export type Keys = string | { readonly prefix: string };

export interface KeyValue {
  readonly key: string;
  readonly value: string;
  readonly createRevision: Revision;
  readonly modRevision: Revision;

  /** 1 for a new key, one more for each change. */
  readonly version: bigint;
  readonly lease: Lease;
}

/** Compares every key of `keys`; a key that is not there has 0 in all numbers, and no value. */
export type Compare = { readonly keys: Keys; readonly is: "=" | "!=" | "<" | ">" } & (
  | { readonly target: "create" | "mod" | "version" | "lease"; readonly than: bigint }
  | { readonly target: "value"; readonly than: string }
);

export interface Txn {
  /** All of them have to be true for `do`. */
  readonly when: readonly Compare[];
  readonly do: readonly Op[];
  readonly otherwise?: readonly Op[];
}

export type Op = Put | Get | Remove | { readonly op: "txn"; readonly txn: Txn };

export interface Put {
  readonly op: "put";
  readonly key: string;
  readonly value: string;

  /** Deletes the key when it ends. */
  readonly lease?: Lease;
}

export interface Remove {
  readonly op: "remove";
  readonly keys: Keys;
}

export interface Get {
  readonly op: "get";
  readonly keys: Keys;

  /** Default: by key, ascending. */
  readonly by?: "key" | "create";
  readonly order?: "ascending" | "descending";

  /** The most to return; `count` still tells how many there are. */
  readonly limit?: number;

  /** Only keys created at this revision or before. The count ignores it. */
  readonly createdBy?: Revision;

  /** Leaves the values out. */
  readonly keysOnly?: boolean;

  /**
   * Reads what the member has that is asked: sooner, since it asks nobody, but it may lag behind. Of a
   * transaction, all reads have to say so; one that only compares is answered like that in any case.
   */
  readonly serializable?: boolean;

  /** Only keys after this one, for reading page by page. */
  readonly after?: string;
}

export interface TxnAnswer {
  readonly succeeded: boolean;
  readonly revision: Revision;

  /** Of `do` or `otherwise`, in their order. */
  readonly answers: readonly OpAnswer[];
}

/** What one operation answered; what it has no answer for is empty. */
export interface OpAnswer {
  readonly kvs: readonly KeyValue[];
  readonly count: number;
  readonly removed: number;
  readonly txn: Omit<TxnAnswer, "revision"> | undefined;
}

export interface RangeAnswer {
  readonly kvs: readonly KeyValue[];
  readonly count: number;
  readonly revision: Revision;
}

export interface Watcher {
  /**
   * The watch stands: what changes after this revision is told. Read what you watch now. Once more, with 0, when
   * the client is closed.
   */
  ready(revision: Revision): void;

  /** In order of their revisions; after a broken connection some may be missing. */
  changed(changes: readonly Change[]): void;
}

export interface Change {
  readonly type: "put" | "remove";
  readonly key: string;
  readonly value: string;

  /** The revision of this change. */
  readonly modRevision: Revision;

  /** Of the key put; 0 for a key removed. */
  readonly createRevision: Revision;
  readonly lease: Lease;
}

/** There is no lease with this id. What was asked for has not been done. */
export class NoLeaseError extends Error {
  override readonly name = "NoLeaseError";
}

/** There is a lease with this id already. */
export class LeaseExistsError extends Error {
  override readonly name = "LeaseExistsError";
}

/** The key is the one created at this revision: not gone, and not one of the same name that came later. */
export function isCreated(key: string, revision: Revision): Compare {
  return { keys: key, target: "create", is: "=", than: revision };
}

/** There is no such key, or none with such a prefix. */
export function isAbsent(keys: Keys): Compare {
  return { keys, target: "create", is: "=", than: 0n };
}

export function put(key: string, value: string, lease?: Lease): Put {
  return { op: "put", key, value, ...(lease !== undefined && { lease }) };
}

export function get(keys: Keys, options: Omit<Get, "op" | "keys"> = {}): Get {
  return { op: "get", keys, ...options };
}

export function remove(keys: Keys): Remove {
  return { op: "remove", keys };
}

export interface EtcdOptions {
  /** host:port, tried in turn. */
  readonly endpoints: readonly string[];
  readonly user?: string;
  readonly password?: string;

  /**
   * Where the tokens are kept that passwords were good for. Default: each client has its own, and logs in. That is slow
   * on purpose, so clients that are opened anew for each request share one Map. It holds secrets.
   */
  readonly tokens?: Map<string, string>;

  /** PEM texts; `{}` trusts the system's authorities. Without it, nothing is encrypted. */
  readonly tls?: EtcdTls;

  /** The longest wait for one answer, in milliseconds. Default 5,000. */
  readonly timeout?: Millis;
}

export interface EtcdTls {
  readonly ca?: string;
  readonly cert?: string;
  readonly key?: string;
}
