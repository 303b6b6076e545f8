import { releaseUntilKnown, requestPauses, withinAttempt } from "../../../lock/attempts.ts";
import { hasCode, isCertain, StoreUnavailableError } from "../../../lock/errors.ts";
import { retry } from "../../../lock/retry.ts";
import type { Cleanup } from "../../../lock/session-pool.ts";
import { NotQueuedError } from "../../../lock/session-queue.ts";
import type { Millis } from "../../../lock/time.ts";
import { parentOf } from "../client/names.ts";
import { NoNodeError, type Path, type ZooKeeperSession, type Zxid } from "../client/zookeeper.ts";
import { forgetNodes, keepNodes } from "./left-over.ts";
import { contendersIn, createPath, createQueue, newNodePrefix, removeIfThere } from "./queue.ts";
import { lostPlace, predecessorOf, type QueueNode, ZooKeeperQueueEntry } from "./queue-entry.ts";

/** The queues to enter, and the nodes to create in them. */
export interface ZooKeeperEnterOptions {
  readonly session: ZooKeeperSession;

  /** Missing nodes between the root and the queues are created as containers. */
  readonly root: Path;
  readonly queues: readonly Path[];
  readonly data: string;

  /** An additional node to read on entering. */
  readonly also?: Path;
  readonly ttl: Millis;

  /** How long the caller waits for the outcome. */
  readonly patience?: Millis;
  readonly signal: AbortSignal;

  /** Called when nodes of ours may be left, with an attempt to remove them. */
  onDoubt(cleanup: Cleanup<unknown>): void;
}

/** How often a request is repeated because its queue is missing: ZooKeeper deletes empty ones every minute. */
const MOST_REPEATS = 9;

/** Enters the queues. When it rejects, no node is left; with a NotQueuedError when the session has ended. */
export function enter(options: ZooKeeperEnterOptions): Promise<ZooKeeperQueueEntry> {
  return new EnterRequest(options).enter();
}

/** Enters the queues only if they are empty, and writes nothing otherwise. Resolves to undefined then. */
export async function enterIfFree(
  options: ZooKeeperEnterOptions,
): Promise<ZooKeeperQueueEntry | undefined> {
  const { session, queues, ttl, patience, signal } = options;
  const readOnce = async (limit: AbortSignal) => {
    const [, ...children] = await Promise.all([
      session.sync(limit),
      ...childrenOf(queues, session, limit),
    ]);
    const contenders = queues.map((queue, i) =>
      contendersIn(session, queue, children[i] ?? [], limit),
    );
    return (await Promise.all(contenders)).some(({ length }) => length > 0);
  };
  const read = () => withinAttempt(readOnce, ttl, signal, patience);
  const fail = (error: unknown) => {
    if (session.signal.aborted) throw endOf(session);
    signal.throwIfAborted();
    throw isKnown(error) ? error : unavailable(session, error);
  };
  // Once more, over a better connection.
  const isBusy = await read().catch((error) => {
    if (session.signal.aborted || signal.aborted || isKnown(error)) return fail(error);
    return read().catch(fail);
  });
  return isBusy ? undefined : new EnterRequest(options).enterFirst();
}

function childrenOf(queues: readonly Path[], session: ZooKeeperSession, signal: AbortSignal) {
  return queues.map((queue) => session.children(queue, { signal }));
}

/** A request to create the nodes of an entry, repeated when an answer is lost: a unique prefix identifies our nodes. */
class EnterRequest {
  readonly #options: ZooKeeperEnterOptions;
  readonly #prefix = newNodePrefix();

  /** Whether nodes of ours may exist. */
  #mayExist = false;

  /** Whether the queues are created together with our nodes. */
  #createsQueues = false;

  constructor(options: ZooKeeperEnterOptions) {
    this.#options = options;
  }

  async enter(): Promise<ZooKeeperQueueEntry> {
    const { session } = this.#options;
    keepNodes(session, this.#prefix);
    try {
      return await this.#enterUntilKnown();
    } catch (error) {
      // Nodes that may exist are removed over the session's next connection.
      forgetNodes(session, this.#prefix);
      throw error;
    }
  }

  /** Resolves to undefined when another entry came first. */
  async enterFirst(): Promise<ZooKeeperQueueEntry | undefined> {
    const entry = await this.enter();
    if (entry.wasFirst) return entry;
    forgetNodes(this.#options.session, this.#prefix);
    await this.#withdraw();
    return undefined;
  }

  #enterUntilKnown(): Promise<ZooKeeperQueueEntry> {
    const { session, patience, signal } = this.#options;
    const pauseOf = requestPauses(patience);
    let lost = 0;
    const pauseAfter = async (error: unknown, count: number) => {
      if (session.signal.aborted) throw endOf(session);
      const isLost = this.#mayExist;
      if (isLost) await this.#withdraw();
      signal.throwIfAborted();
      if (error instanceof NoNodeError && count < MOST_REPEATS) {
        await this.#prepare();
        return 0;
      }
      const pause = isLost && !isCertain(error) ? pauseOf(lost) : undefined;
      if (pause === undefined) throw isKnown(error) ? error : unavailable(session, error);
      lost += 1;
      return pause;
    };
    return retry(() => this.#enterOnce(), pauseAfter);
  }

  async #enterOnce(): Promise<ZooKeeperQueueEntry> {
    const { session, queues, data, also, ttl, patience, signal } = this.#options;
    // All requests are sent at once: the server executes those of a session in order.
    const enter = async (limit: AbortSignal) => {
      const preparing = this.#createsQueues ? this.#createQueues(limit) : undefined;
      const creating = this.#create(limit).catch(async (error) => {
        // Our nodes are missing because their queues are, and the error of those says why.
        throw (await preparing) ?? error;
      });
      const [{ paths, token }, read, ...children] = await Promise.all([
        creating,
        also === undefined ? undefined : session.read(also, { signal: limit }),
        ...childrenOf(queues, session, limit),
      ]);
      const nodes = queues.map(async (queue, i): Promise<QueueNode> => {
        const node = { queue, path: paths[i] ?? "" };
        const predecessor = await predecessorOf(node, session, children[i] ?? [], limit);
        return { ...node, predecessor };
      });
      const entered = {
        ...{ nodes: await Promise.all(nodes), prefix: this.#prefix },
        ...{ token, read: read?.data, data },
      };
      return new ZooKeeperQueueEntry(session, entered);
    };
    return withinAttempt(enter, ttl, signal, patience);
  }

  /** Creates the queues. Resolves to the error of one that has certainly failed. */
  async #createQueues(limit: AbortSignal): Promise<unknown> {
    const { session, queues } = this.#options;
    const creating = queues.map((queue) => createQueue(session, queue, limit));
    const outcomes = await Promise.allSettled(creating);
    const errors = outcomes.map((each) => (each.status === "rejected" ? each.reason : undefined));
    return errors.find(isCertain);
  }

  /** Creates our nodes. */
  async #create(
    limit: AbortSignal,
  ): Promise<{ readonly paths: readonly Path[]; readonly token: Zxid }> {
    const { session, queues, data } = this.#options;
    const nodes = queues.map((queue) => {
      return { path: `${queue}/${this.#prefix}`, data, mode: "sequential" } as const;
    });
    const [node] = nodes;
    if (node && nodes.length === 1) {
      const { path, czxid } = await this.#created(session.create(node, limit));
      return { paths: [path], token: czxid };
    }
    const creations = nodes.map((each) => ({ op: "create", node: each }) as const);
    const paths = (await this.#created(session.multi(creations, limit))).map(String);
    // One change has created all of them; the answer to a transaction does not contain its zxid.
    const first = await session.read(paths[0] ?? "", { signal: limit });
    if (!first) throw lostPlace(session);
    return { paths, token: first.stat.czxid };
  }

  async #created<T>(creating: Promise<T>): Promise<T> {
    this.#mayExist = true;
    try {
      return await creating;
    } catch (error) {
      this.#mayExist = hasCode(error, "UNKNOWN_OUTCOME");
      throw error;
    }
  }

  /** Prepares for a missing queue: the next attempt creates it, and after that its ancestors are created. */
  async #prepare(): Promise<void> {
    const { session, root, queues, ttl, signal } = this.#options;
    if (!this.#createsQueues) {
      this.#createsQueues = true;
      return;
    }
    const create = async (limit: AbortSignal) => {
      for (const queue of queues) {
        await createPath(session, parentOf(queue), { root, signal: limit });
      }
    };
    try {
      await withinAttempt(create, ttl, signal);
    } catch (error) {
      signal.throwIfAborted();
      // The next attempt finds what was created without an answer.
      if (!hasCode(error, "UNKNOWN_OUTCOME"))
        throw isKnown(error) ? error : unavailable(session, error);
    }
  }

  async #withdraw(): Promise<void> {
    const { session, queues, ttl, onDoubt } = this.#options;
    const drop = async (limit: AbortSignal) => {
      await this.#removeAll(limit);
      return true;
    };
    try {
      await releaseUntilKnown({ drop, store: session.address, names: queues, ttl, remaining: 0 });
      this.#mayExist = false;
    } catch (error) {
      onDoubt(() => withinAttempt(drop, ttl));
      throw error;
    }
  }

  /** Removes all nodes with our prefix. */
  async #removeAll(limit: AbortSignal): Promise<void> {
    const { session, queues } = this.#options;
    try {
      // A server of a new connection may lag behind our writes over the old one.
      const [, ...children] = await Promise.all([
        session.sync(limit),
        ...childrenOf(queues, session, limit),
      ]);
      const paths = queues.flatMap((queue, i) => {
        const ours = children[i]?.filter((name) => name.startsWith(this.#prefix)) ?? [];
        return ours.map((name) => `${queue}/${name}`);
      });
      for (const path of paths) await removeIfThere(session, path, limit);
    } catch (error) {
      // The nodes have ended with their session.
      if (!hasCode(error, "SESSION_EXPIRED")) throw error;
    }
  }
}

/** Returns the error of a session that has ended. Another session helps, unless the server refuses the user. */
function endOf({ id, signal }: ZooKeeperSession): Error {
  return hasCode(signal.reason, "STORE_REFUSED") ? signal.reason : new NotQueuedError(id);
}

function unavailable({ address }: ZooKeeperSession, cause: unknown): StoreUnavailableError {
  return new StoreUnavailableError(address, "the server did not confirm a queue entry", cause);
}

/** Whether the error is one for users; other errors are about single requests, or about a limit that has passed. */
function isKnown(error: unknown): boolean {
  return isCertain(error) || hasCode(error, "SESSION_EXPIRED");
}
