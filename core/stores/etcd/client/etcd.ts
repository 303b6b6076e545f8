import type { Duration } from "../../../lock/duration.ts";
import type { Millis } from "../../../lock/time.ts";

/** A client of etcd, over any transport: seven calls. */
export interface Etcd extends AsyncDisposable {
  /** The endpoints, for error messages. Contains no secrets. */
  readonly address: string;

  /**
   * Executes a transaction, all of it or nothing. At most 128 operations unless the server allows more.
   *
   * Rejects with a StoreUnavailableError or StoreRefusedError only when the transaction was certainly not executed; with
   * an UnknownOutcomeError when a write was, or may still be; with a NoLeaseError when the lease of a put is gone. A
   * transaction is never executed twice.
   */
  txn(txn: Txn, signal?: AbortSignal): Promise<TxnAnswer>;

  /** Reads keys, including every write that was acknowledged before the call. */
  range(get: Get, signal?: AbortSignal): Promise<RangeAnswer>;

  /**
   * Creates a lease under an id of the caller's choice, from 1 to 2^63 - 1: a second request for the same id tells what
   * became of a lost answer. Resolves to the granted ttl in seconds, never less than requested.
   *
   * Rejects as `txn` does; with a LeaseExistsError when the id is taken.
   *
   * @internal
   */
  grant(lease: LeaseId, ttl: Seconds, signal?: AbortSignal): Promise<Seconds>;

  /**
   * Ends a lease and deletes its keys. Resolves to false when the lease does not exist. Rejects as `txn` does.
   *
   * @internal
   */
  revoke(lease: LeaseId, signal?: AbortSignal): Promise<boolean>;

  /**
   * Starts the ttl of a lease anew. Resolves to the ttl, or to undefined when the lease does not exist.
   *
   * @internal
   */
  keepAlive(lease: LeaseId, signal?: AbortSignal): Promise<Seconds | undefined>;

  /**
   * Resolves to the remaining ttl of a lease, or to undefined when the lease does not exist.
   *
   * @internal
   */
  timeToLive(lease: LeaseId, signal?: AbortSignal): Promise<Seconds | undefined>;

  /**
   * Watches for changes from now on, until the returned function is called. A watch survives broken connections: each time
   * it is created again, `ready` is called, and changes before that may have been missed.
   *
   * @internal
   */
  watch(keys: Keys, watcher: Watcher): () => void;

  /** Ends watches and pending calls, and lets the process exit. Leases live on. Never rejects. */
  close(): Promise<void>;
}

/** The number of a write in a cluster, from 1. */
export type Revision = bigint;

/** The id of a lease; 0 means none. */
export type LeaseId = bigint;

/** Whole seconds, the unit of leases. */
export type Seconds = number;

/** One key, or all keys with a prefix. The prefix "" means all keys. */
export type Keys = string | { readonly prefix: string };

export interface KeyValue {
  readonly key: string;
  readonly value: string;
  readonly createRevision: Revision;
  readonly modRevision: Revision;

  /** 1 for a new key, and one more after each change. */
  readonly version: bigint;
  readonly lease: LeaseId;
}

/** Compares every key of `keys`. All numbers of a missing key are 0, and it has no value. */
export type Compare = {
  /** One key, or all keys with a prefix. */
  readonly keys: string | { readonly prefix: string };
  readonly is: "=" | "!=" | "<" | ">";
} & (
  | { readonly target: "create" | "mod" | "version" | "lease"; readonly than: bigint }
  | { readonly target: "value"; readonly than: string }
);

export interface Txn {
  /** The conditions of `do`; if one of them is false, `otherwise` is executed. */
  readonly when: readonly Compare[];
  readonly do: readonly TxnOp[];
  readonly otherwise?: readonly TxnOp[];
}

export type TxnOp = Put | Get | Remove | { readonly op: "txn"; readonly txn: Txn };

export interface Put {
  readonly op: "put";
  readonly key: string;
  readonly value: string;

  /** The lease whose end deletes the key. */
  readonly lease?: LeaseId;
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

  /** The most keys to return. `count` ignores it. */
  readonly limit?: number;

  /** Only keys created at this revision or before. `count` ignores it. */
  readonly createdBy?: Revision;

  /** Omits the values. */
  readonly keysOnly?: boolean;

  /**
   * Reads the data of the member that gets the request: faster, but the member may lag behind. All reads of a transaction
   * have to be serializable for that; a transaction that only compares always is.
   */
  readonly serializable?: boolean;

  /** Only keys after this one, for reading in pages. */
  readonly after?: string;
}

export interface TxnAnswer {
  readonly succeeded: boolean;
  readonly revision: Revision;

  /** The answers to `do` or `otherwise`, in their order. */
  readonly answers: readonly OpAnswer[];
}

/** The answer to one operation. Fields that do not apply are empty. */
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
   * Called when the watch is created: it reports the changes after this revision. Read the keys now. Called with 0 when
   * the server refuses the watch, and once more when the client is closed: the read gets the error.
   */
  ready(revision: Revision): void;

  /** Called with changes in the order of their revisions. After a broken connection, some may be missing. */
  changed(changes: readonly KeyChange[]): void;
}

export interface KeyChange {
  readonly type: "put" | "remove";
  readonly key: string;
  readonly value: string;

  /** The revision of this change. */
  readonly modRevision: Revision;

  /** The create revision of the key; 0 for a removed key. */
  readonly createRevision: Revision;
  readonly lease: LeaseId;
}

/** The lease does not exist. The request was not executed. */
export class NoLeaseError extends Error {
  override readonly name = "NoLeaseError";
}

/** A lease with this id exists already. */
export class LeaseExistsError extends Error {
  override readonly name = "LeaseExistsError";
}

/** Holds for a key that was created at this revision, not for a later key of the same name. */
export function isCreated(key: string, revision: Revision): Compare {
  return { keys: key, target: "create", is: "=", than: revision };
}

/** Holds when the key does not exist, or no key with the prefix does. */
export function isAbsent(keys: Keys): Compare {
  return { keys, target: "create", is: "=", than: 0n };
}

export function put(key: string, value: string, lease?: LeaseId): Put {
  return { op: "put", key, value, ...(lease !== undefined && { lease }) };
}

export function get(keys: Keys, options: Omit<Get, "op" | "keys"> = {}): Get {
  return { op: "get", keys, ...options };
}

export function remove(keys: Keys): Remove {
  return { op: "remove", keys };
}

/** Chooses the id of a new lease, at random. */
export function newLease(): LeaseId {
  const [number = 0n] = crypto.getRandomValues(new BigUint64Array(1));
  return number >> 1n || 1n;
}

/** The whole seconds that cover a span. */
export function toSeconds(span: Millis): Seconds {
  return Math.ceil(span / 1_000);
}

export interface EtcdOptions {
  /** HOST:PORT, http://HOST:PORT or https://HOST:PORT, tried in turn: all of them encrypted, or none. */
  readonly endpoints: readonly string[];
  readonly user?: string;
  readonly password?: string;

  /**
   * A Map for the tokens of logins, which are secrets. Default: each client logs in for itself. A login is slow on purpose,
   * so clients that are created for each request should share one Map.
   */
  readonly tokens?: Map<string, string>;

  /** PEM texts; `{}` trusts the system's authorities. Without it, nothing is encrypted. */
  readonly tls?: EtcdTls;

  /** The longest wait for one answer. Default 5 s. */
  readonly timeout?: Duration;
}

export interface EtcdTls {
  readonly ca?: string;
  readonly cert?: string;
  readonly key?: string;
}
