import { follow } from "../../../lock/abort.ts";
import type { CandidateEntry } from "../../../lock/election.ts";
import { hasCode, SessionExpiredError } from "../../../lock/errors.ts";
import { Notifier } from "../../../lock/notifier.ts";
import { readWhenAvailable } from "../../../lock/retry.ts";
import { after, keepProcessAlive, type Millis } from "../../../lock/time.ts";
import { NoNodeError, type Path, type ZooKeeperSession, type Zxid } from "../client/zookeeper.ts";
import { forgetNodes, keepNodes } from "./left-over.ts";
import { childrenBefore, contendersIn, removeIfThere } from "./queue.ts";

/** An entry as the answers to its creation describe it. */
export interface ZooKeeperEntered {
  readonly nodes: readonly QueueNode[];

  /** The beginning of the names of its nodes. */
  readonly prefix: string;

  /** The czxid of its nodes. */
  readonly token: Zxid;

  /** The data of the additional node that was read. */
  readonly read: string | undefined;

  /** The data of its nodes. */
  readonly data: string;
}

/** The node of an entry in one queue. */
export interface QueueNode {
  readonly queue: Path;
  readonly path: Path;

  /** The last node before ours when we entered; undefined: none, and none will ever be. */
  readonly predecessor: Path | undefined;
}

/** How long an entry holds a lock before its nodes are watched: most locks are released sooner. */
const GUARD_AFTER: Millis = 50;

/** How long an entry waits before it reads its nodes again after a refusal. */
const LOOK_AGAIN: Millis = 10_000;

/**
 * An entry in one queue, or in several at once: one change creates all of its nodes, so two entries have the same order in
 * each queue. An entry only waits for earlier ones, so no two entries wait for each other.
 *
 * The number of predecessors can only fall, so an entry watches the last of them, and a node that goes wakes one waiter. A
 * session reads its own writes, so a read after the creation misses no predecessor.
 */
export class ZooKeeperQueueEntry implements CandidateEntry {
  readonly paths: readonly Path[];

  /** The czxid of the nodes: the fencing token. */
  readonly token: Zxid;

  /** The data of the additional node that was read on entering. */
  readonly read: string | undefined;

  /** The data of its nodes, as they were created. */
  readonly data: string;

  /** A node's name is unique: each entry creates its own nodes. */
  readonly isAdopted = false;
  #session: ZooKeeperSession;
  readonly #prefix: string;
  readonly #nodes: readonly QueueNode[];

  constructor(session: ZooKeeperSession, { nodes, prefix, token, read, data }: ZooKeeperEntered) {
    this.#session = session;
    this.#prefix = prefix;
    this.paths = nodes.map(({ path }) => path);
    this.token = token;
    this.read = read;
    this.data = data;
    this.#nodes = nodes;
  }

  /** The path of the first of its nodes. */
  get key(): Path {
    return this.paths[0] ?? "";
  }

  /** Whether the entry had no predecessor when it was created. */
  get wasFirst(): boolean {
    return this.#nodes.every(({ predecessor }) => predecessor === undefined);
  }

  async waitForTurn(signal: AbortSignal): Promise<void> {
    if (this.wasFirst) return;
    const gone = new AbortController();
    const scope = follow(signal, gone.signal);
    const stop = this.#watchOwn((loss) => gone.abort(loss));
    // A watch does not keep the process alive.
    const letExit = keepProcessAlive();
    try {
      for (const node of this.#nodes) await this.#outlast(node, scope.signal);
    } finally {
      letExit();
      stop();
      scope[Symbol.dispose]();
    }
  }

  guard(onGone: (loss: Error) => void): () => void {
    const { signal } = this.#session;
    const onEnd = () => onGone(signal.reason);
    let stop = () => {};
    const start = () => {
      stop = this.#watchOwn(onGone);
    };
    const cancel = after(GUARD_AFTER, start, { idle: true });
    signal.addEventListener("abort", onEnd, { once: true });
    if (signal.aborted) onEnd();
    return () => {
      cancel();
      stop();
      signal.removeEventListener("abort", onEnd);
    };
  }

  async leave(limit?: AbortSignal): Promise<boolean> {
    // Where the removal fails, the next connection of the session repeats it.
    forgetNodes(this.#session, this.#prefix);
    try {
      if (this.paths.length === 1) await this.#session.remove(this.key, limit);
      else await this.#session.multi(this.#removals(), limit);
      return true;
    } catch (error) {
      // The nodes have ended with their session.
      if (hasCode(error, "SESSION_EXPIRED")) return false;
      if (!(error instanceof NoNodeError)) throw error;
    }
    if (this.paths.length === 1) return false;
    for (const each of this.paths) await removeIfThere(this.#session, each, limit);
    return false;
  }

  /**
   * Gives the nodes to another session, in the same place: the next waiter reads again, and finds them. Resolves to false
   * when they were gone.
   */
  async move(to: ZooKeeperSession, data: string, limit: AbortSignal): Promise<boolean> {
    const creations = this.paths.map((path) => {
      return { op: "create", node: { path, data, mode: "ephemeral" } } as const;
    });
    keepNodes(to, this.#prefix);
    try {
      await to.multi([...this.#removals(), ...creations], limit);
    } catch (error) {
      if (error instanceof NoNodeError) return false;
      if (!hasCode(error, "UNKNOWN_OUTCOME") || !(await this.#hasMoved(to, limit))) throw error;
    }
    forgetNodes(this.#session, this.#prefix);
    this.#session = to;
    return true;
  }

  async #hasMoved(to: ZooKeeperSession, signal: AbortSignal): Promise<boolean> {
    const [, node] = await Promise.all([to.sync(signal), to.read(this.key, { signal })]);
    return node?.stat.owner === to.owner;
  }

  /** Waits until our node is the first one in this queue. The last read includes our own node. */
  async #outlast({ queue, path, predecessor }: QueueNode, signal: AbortSignal): Promise<void> {
    const session = this.#session;
    // Without a timer: a watch lives as long as its connection, whose end notifies, too.
    const notifier = new Notifier();
    const watch = () => notifier.notify();
    let last = predecessor;
    try {
      while (last !== undefined) {
        const node = last;
        const read = () => session.read(node, { watch, signal });
        if (await readWhenAvailable(read, signal)) await notifier.wait({ signal });
        const readPredecessor = async () => {
          const children = (await session.children(queue, { signal })) ?? [];
          return predecessorOf({ queue, path }, session, children, signal);
        };
        const next = await readWhenAvailable(readPredecessor, signal);
        session.unwatch(last, watch);
        last = next;
      }
    } finally {
      if (last !== undefined) session.unwatch(last, watch);
    }
  }

  /** Calls `onGone` when a node of ours is gone. */
  #watchOwn(onGone: (loss: SessionExpiredError) => void): () => void {
    const over = new AbortController();
    const notifier = new Notifier();
    const watch = () => notifier.notify();
    const run = async () => {
      const { signal } = over;
      try {
        for (;;) {
          const exist = await this.#mayExist(watch, signal);
          if (exist === false) break;
          // A read that was refused has left no watch.
          const span = exist ? Number.POSITIVE_INFINITY : LOOK_AGAIN;
          await notifier.wait({ span, signal, idle: true });
        }
        onGone(lostPlace(this.#session));
      } finally {
        for (const path of this.paths) this.#session.unwatch(path, watch);
      }
    };
    void run().catch(() => {});
    return () => over.abort();
  }

  /** Resolves to whether all nodes exist; to undefined when the server refuses to tell. */
  async #mayExist(watch: () => void, signal: AbortSignal): Promise<boolean | undefined> {
    try {
      return await readWhenAvailable(() => this.#exist(watch, signal), signal);
    } catch (error) {
      if (hasCode(error, "STORE_REFUSED")) return undefined;
      throw error;
    }
  }

  /** Names are unique, so an existing node is the one that we created. */
  async #exist(watch: () => void, signal: AbortSignal): Promise<boolean> {
    const reads = this.paths.map((path) => this.#session.read(path, { watch, signal }));
    return (await Promise.all(reads)).every((node) => node !== undefined);
  }

  #removals() {
    return this.paths.map((path) => ({ op: "remove", path }) as const);
  }
}

/** Creates the error for an entry whose node is gone. */
export function lostPlace(session: ZooKeeperSession): SessionExpiredError {
  return new SessionExpiredError(session.id, "has lost its place in the queue");
}

/** Resolves to the last contender before a node. Rejects when the node itself is missing. */
export async function predecessorOf(
  { queue, path }: Pick<QueueNode, "queue" | "path">,
  session: ZooKeeperSession,
  children: readonly string[],
  signal: AbortSignal,
): Promise<Path | undefined> {
  const ours = path.slice(queue.length + 1);
  if (!children.includes(ours)) throw lostPlace(session);
  const before = await contendersIn(session, queue, childrenBefore(children, ours), signal);
  const last = before.at(-1);
  return last && `${queue}/${last}`;
}
