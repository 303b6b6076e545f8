import type { Duration } from "../../../lock/duration.ts";
import type { LeaseGrant } from "../../../lock/lease.ts";
import type { Millis } from "../../../lock/time.ts";

/** A client of ZooKeeper, which opens sessions. */
export interface ZooKeeper extends AsyncDisposable {
  /** The servers, for error messages. Contains no secrets. */
  readonly address: string;

  /**
   * Opens a session, with a connection of its own. The servers have a minimal and a maximal timeout: the session's ttl is
   * the granted one.
   *
   * Rejects with a StoreUnavailableError when no server opens a session within 5 s, or with the signal's reason.
   */
  openSession(ttl: Duration, signal?: AbortSignal): Promise<ZooKeeperSession>;

  /** Ends all sessions. Never rejects. */
  close(): Promise<void>;
}

/**
 * A session: ZooKeeper deletes its ephemeral nodes when it ends. A session moves to another server when a connection breaks.
 * Only a request under way keeps the process alive.
 *
 * The servers execute requests in their order, without waiting for answers in between. A read sees all writes of this
 * session, and never an older state than a read before it; it may miss recent writes of other sessions, except after `sync`.
 *
 * A request rejects with a StoreUnavailableError or StoreRefusedError only when it was certainly not executed; with an
 * UnknownOutcomeError when a write may have been; with a SessionExpiredError when the session had ended before; with the
 * signal's reason when it was not sent by then, or only reads. A request is never executed twice, nor after the answer to
 * a later request of the session.
 */
export interface ZooKeeperSession extends AsyncDisposable {
  /** The id in ZooKeeper's notation. */
  readonly id: string;

  /** The id as a number, as in the nodes that the session owns. */
  readonly owner: bigint;
  readonly address: string;

  /** As granted by the servers. */
  readonly ttl: Millis;

  /** Aborts with a SessionExpiredError when the session ends, no later than its expiry at the servers. */
  readonly signal: AbortSignal;

  /**
   * The last grant: the servers count the ttl from its time, or from a later one.
   *
   * @internal
   */
  readonly granted: LeaseGrant;

  /** Milliseconds for which the session certainly lives; 0 once it has ended. */
  remaining(): Millis;

  /**
   * Resolves to a valid grant, as the session's heartbeats bring them; to undefined when the session has ended.
   *
   * @internal
   */
  renew(signal: AbortSignal): Promise<LeaseGrant | undefined>;

  /**
   * Starts the whole ttl anew, at the cost of a new connection. Resolves to undefined when the session has ended.
   *
   * @internal
   */
  restart(signal: AbortSignal): Promise<LeaseGrant | undefined>;

  /**
   * Stops the heartbeats of the session.
   *
   * @internal
   */
  stopKeepAlive(): void;

  /** @internal */
  create(node: NewNode, signal?: AbortSignal): Promise<Created>;

  /**
   * Rejects with a NoNodeError.
   *
   * @internal
   */
  remove(path: Path, signal?: AbortSignal): Promise<void>;

  /**
   * Rejects with a NoNodeError, or with a BadVersionError unless the node has this version.
   *
   * @internal
   */
  write(path: Path, data: string, options?: Write): Promise<Stat>;

  /**
   * Resolves to undefined, and sets no watch, when the node does not exist.
   *
   * @internal
   */
  read(path: Path, options?: Read): Promise<Node | undefined>;

  /**
   * Resolves to the names of the children, in no order; to undefined when the node does not exist.
   *
   * @internal
   */
  children(path: Path, options?: Read): Promise<readonly string[] | undefined>;

  /**
   * Makes later reads see every write that was acknowledged before, of any session.
   *
   * @internal
   */
  sync(signal?: AbortSignal): Promise<void>;

  /**
   * Carries all operations out in one change, or none. Resolves to the path of each created node. Rejects as the first
   * operation that fails.
   *
   * @internal
   */
  multi(ops: readonly MultiOp[], signal?: AbortSignal): Promise<readonly (Path | undefined)[]>;

  /**
   * Resolves to the paths of the ephemeral nodes of this session, as its server has them. ZooKeeper before 3.6 refuses.
   *
   * @internal
   */
  ephemerals(): Promise<readonly Path[]>;

  /**
   * Calls back whenever the session has a new connection, but for the first one. A rejection is ignored.
   *
   * @internal
   */
  onReconnect(call: () => Promise<void>): void;

  /**
   * Removes a watch from a path.
   *
   * @internal
   */
  unwatch(path: Path, watch: Watch): void;

  /** Ends the session and deletes its nodes, as far as a server can be reached; otherwise they expire. Never rejects. */
  close(): Promise<void>;
}

/** A path that starts with "/" and has no empty segment. */
export type Path = string;

/** The number of a change in an ensemble. Numbers only rise. */
export type Zxid = bigint;

/**
 * Called once, when the node may have changed since the read: the node has changed, or the connection is a new one. Read
 * again, with the watch.
 */
export type Watch = () => void;

export interface NewNode {
  readonly path: Path;
  readonly data?: string;

  /**
   * `sequential`: ephemeral, and ten digits are appended to the path, which rise within the parent. `container`: deleted
   * some time after its last child. Default: `persistent`.
   */
  readonly mode?: "persistent" | "ephemeral" | "sequential" | "container";
}

export interface Created {
  readonly path: Path;

  /** The change that created the node. */
  readonly czxid: Zxid;
}

export interface Write {
  /** The expected version. Default: any. */
  readonly version?: number;
  readonly signal?: AbortSignal;
}

export interface Read {
  readonly watch?: Watch;
  readonly signal?: AbortSignal;
}

export interface Node {
  readonly data: string;
  readonly stat: Stat;
}

export interface Stat {
  readonly czxid: Zxid;

  /** The change that last wrote the data. */
  readonly mzxid: Zxid;

  /** By the clock of the server that led then. */
  readonly createdAt: Date;

  /** 0 for a new node, and one more after each write. */
  readonly version: number;

  /** The session whose end deletes the node; 0 for none. */
  readonly owner: bigint;
}

export type MultiOp =
  | { readonly op: "create"; readonly node: NewNode }
  | { readonly op: "remove"; readonly path: Path }
  | { readonly op: "write"; readonly path: Path; readonly data: string; readonly version?: number };

/** The node, or the parent of a new node, does not exist. */
export class NoNodeError extends Error {
  override readonly name = "NoNodeError";
}

/** The node exists already. */
export class NodeExistsError extends Error {
  override readonly name = "NodeExistsError";
}

/** The node has another version. */
export class BadVersionError extends Error {
  override readonly name = "BadVersionError";
}

export interface ZooKeeperOptions {
  /** host:port of each server. The first one is chosen at random, the others follow in turn. */
  readonly servers: readonly string[];

  /** Digest authentication, in clear text without `tls`. Only this user may access the created nodes. */
  readonly user?: string;
  readonly password?: string;

  /** Encrypts, and always checks the servers' certificates and host names. */
  readonly tls?: ZooKeeperTls;
}

/** PEM texts. Without `ca`, Node's certificate authorities are trusted. */
export interface ZooKeeperTls {
  readonly ca?: string;
  readonly cert?: string;
  readonly key?: string;
}
