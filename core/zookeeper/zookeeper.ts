import type { Grant } from "../lock/life.ts";
import type { Millis } from "../lock/time.ts";

/** ZooKeeper as everything here uses it: sessions, and in each of them a few requests. */
export interface ZooKeeper extends AsyncDisposable {
  /** The servers, for messages: no secrets. */
  readonly address: string;

  /**
   * A new session, with a connection of its own. The servers have a least and a longest timeout: what they have
   * granted is the session's ttl.
   *
   * Rejects with a StoreUnavailableError when no server lets us in, or with the signal's reason.
   */
  openSession(ttl: Millis, signal?: AbortSignal): Promise<Session>;

  /** Ends all sessions, and lets the process exit. Never rejects. */
  close(): Promise<void>;
}

/**
 * A session: its ephemeral nodes are deleted when it ends. It moves to another server when a connection breaks.
 *
 * Requests are carried out in the order in which they are made, also by callers that do not wait for each other's
 * answers. A read sees all that this session has written, and it never goes back in time; what others have
 * written it may see late, except after `sync`.
 *
 * A request rejects with a StoreUnavailableError or StoreRefusedError only when it has certainly not happened;
 * with an UnknownOutcomeError when it may have, unless it only reads; with a SessionExpiredError when the session
 * had ended before; with the signal's reason when it was not sent by then, or only reads. It is never carried out
 * twice, and once a later request of the session is answered, it will not be carried out any more.
 */
export interface Session extends AsyncDisposable {
  /** As ZooKeeper writes it. */
  readonly id: string;

  /** The same as a number, as it stands in the nodes that the session owns. */
  readonly owner: bigint;
  readonly address: string;

  /** As granted. */
  readonly ttl: Millis;

  /** Aborts with a SessionExpiredError when the session ends, and no later than the servers let it expire. */
  readonly signal: AbortSignal;

  /** Since when, at the least, the servers count the ttl. */
  readonly granted: Grant;

  /** Milliseconds for which the session certainly lives; 0 once it has ended. */
  remaining(): Millis;

  /** A grant that has not run down, as the session's own heartbeats bring them; undefined: it has ended. */
  renew(signal: AbortSignal): Promise<Grant | undefined>;

  /** Starts the whole ttl anew, at the cost of a new connection. Undefined: the session has ended. */
  reattach(signal: AbortSignal): Promise<Grant | undefined>;

  /** From now on it is no longer kept alive. */
  rest(): void;

  create(node: NewNode, signal?: AbortSignal): Promise<Created>;

  /** Rejects with a NoNodeError. */
  remove(path: Path, signal?: AbortSignal): Promise<void>;

  /** Rejects with a NoNodeError, or with a BadVersionError unless the node has this version. */
  write(path: Path, data: string, options?: Write): Promise<Stat>;

  /** Undefined where there is no such node: then there is no watch either. */
  read(path: Path, options?: Read): Promise<Node | undefined>;

  /** The names of its children, in no order. Undefined where there is no such node. */
  children(path: Path, options?: Read): Promise<readonly string[] | undefined>;

  /** Everything that was acknowledged to anybody before is seen by the reads after it. */
  sync(signal?: AbortSignal): Promise<void>;

  /**
   * All of it or nothing; it is one change. Resolves to the path of each node that it creates. Rejects as the
   * first one of them that cannot be done.
   */
  multi(ops: readonly Op[], signal?: AbortSignal): Promise<readonly (Path | undefined)[]>;

  /** No longer calls a watch that has been set on this path. */
  unwatch(path: Path, watch: Watch): void;

  /** Ends it, and so deletes its nodes, as far as a server can be reached: otherwise they expire. Never rejects. */
  close(): Promise<void>;
}

/** Starts with "/"; its segments are not empty. */
export type Path = string;

/** Numbers all changes of an ensemble, rising for ever. */
export type Zxid = bigint;

/**
 * Called once, when the node may have changed since it was read: it has, or the connection is a new one. Look
 * again, and set the watch again.
 */
export type Watch = () => void;

export interface NewNode {
  readonly path: Path;
  readonly data?: string;

  /**
   * `sequential`: ephemeral, and ten digits are added to the path, which rise within the parent. `container`: it
   * is deleted some time after its last child. Default: it stays.
   */
  readonly mode?: "persistent" | "ephemeral" | "sequential" | "container";
}

export interface Created {
  readonly path: Path;

  /** The change that has created it. */
  readonly czxid: Zxid;
}

export interface Write {
  /** Default: whichever it has. */
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

  /** The change that has last written its data. */
  readonly mzxid: Zxid;

  /** 0 for a new node, one more for each write. */
  readonly version: number;

  /** The session whose end deletes it; 0 for none. */
  readonly owner: bigint;
}

export type Op =
  | { readonly op: "create"; readonly node: NewNode }
  | { readonly op: "remove"; readonly path: Path }
  | { readonly op: "write"; readonly path: Path; readonly data: string; readonly version?: number };

/** There is no such node, or no parent to create it under. */
export class NoNodeError extends Error {
  override readonly name = "NoNodeError";
}

/** There is such a node already. */
export class NodeExistsError extends Error {
  override readonly name = "NodeExistsError";
}

/** The node has another version. */
export class BadVersionError extends Error {
  override readonly name = "BadVersionError";
}

export interface ZooKeeperOptions {
  /** host:port; the first one is chosen at random, the others follow in turn. */
  readonly servers: readonly string[];

  /** Digest authentication. The nodes that are created belong to this user alone. */
  readonly user?: string;
  readonly password?: string;
}
