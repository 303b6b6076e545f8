import { deadline, noAnswer } from "../../../lock/abort.ts";
import type { FoundLock, LockRequest } from "../../../lock/backend.ts";
import { HIGHEST_GENERATION, noMoreGenerations } from "../../../lock/checks.ts";
import { hasCode, StoreUnavailableError } from "../../../lock/errors.ts";
import { type Fence, formatFence, issueFence } from "../../../lock/fence.ts";
import {
  describeHolder,
  describeLock,
  describeWaiter,
  MOST_WAITERS,
  newHolderId,
} from "../../../lock/holder.ts";
import { INCIDENT_SLOTS, type IncidentSlots } from "../../../lock/incidents.ts";
import type { LockInfo, StoreTraits, WaiterInfo } from "../../../lock/lock.ts";
import { Notifier } from "../../../lock/notifier.ts";
import type { HolderOptions } from "../../../lock/polling.ts";
import { type PooledSession, SessionPool } from "../../../lock/session-pool.ts";
import type { LockQueues } from "../../../lock/session-queue.ts";
import type { Millis } from "../../../lock/time.ts";
import { nameOf, ownPath, parentOf, queueOf } from "../client/names.ts";
import type { Node, Zxid } from "../client/zookeeper.ts";
import {
  BadVersionError,
  NodeExistsError,
  NoNodeError,
  type Path,
  type ZooKeeper,
  type ZooKeeperSession,
} from "../client/zookeeper.ts";
import { enter, enterIfFree, type ZooKeeperEnterOptions } from "./enter.ts";
import { contendersIn, createPath } from "./queue.ts";
import type { ZooKeeperQueueEntry } from "./queue-entry.ts";

export const zookeeperTraits: StoreTraits = {
  name: "zookeeper",
  fair: true,
  watches: true,
  serverClock: true,
  shared: true,
  lockDelay: false,
  // The servers have a minimal timeout of their own, two ticks by default.
  minTtl: 1_000,
};

export interface ZooKeeperLockQueuesOptions extends HolderOptions {
  /** "" or the path of the ancestor of all queues. */
  readonly root: Path;
  readonly closeZooKeeper: boolean;
}

/** The ttl of the session of calls that need no lock. */
const CALL_TTL: Millis = 10_000;

/** The longest time between two reads of a watched queue. */
const CHECK_EVERY: Millis = 10_000;

/** The number of nodes that are read at a time. */
const PAGE = 200;

/** Queues of ephemeral sequential nodes, shared with Curator and ZooKeeper's own recipe. */
export class ZooKeeperLockQueues implements LockQueues<ZooKeeperSession, ZooKeeperQueueEntry> {
  readonly traits = zookeeperTraits;
  readonly sessions: SessionPool<ZooKeeperSession>;
  readonly incidents: IncidentSlots;
  readonly #zookeeper: ZooKeeper;
  readonly #options: ZooKeeperLockQueuesOptions;

  constructor(zookeeper: ZooKeeper, options: ZooKeeperLockQueuesOptions) {
    this.#zookeeper = zookeeper;
    this.#options = options;
    this.incidents = {
      read: () => this.#readIncidents(),
      write: (slot, text) => this.#writeIncident(slot, text),
    };
    this.sessions = new SessionPool({
      address: zookeeper.address,
      // Locks with about the same ttl share a session, and its connection.
      unit: 1_000,
      open: (ttl, signal) => zookeeper.openSession(ttl, signal),
    });
  }

  get address(): string {
    return this.#zookeeper.address;
  }

  enter(
    { names, ttl, wait, patience, work, signal }: LockRequest,
    pooled: PooledSession<ZooKeeperSession>,
  ): Promise<ZooKeeperQueueEntry | undefined> {
    const { root, label, command } = this.#options;
    const holder = describeHolder(newHolderId(label), { ...work, command });
    const { session } = pooled;
    const options: ZooKeeperEnterOptions = {
      session,
      root,
      queues: names.map((name) => queueOf(root, name)),
      data: encodeRecord({ holder, ttl: session.ttl, token: undefined }),
      also: this.#generationPath,
      ttl,
      patience,
      signal,
      onDoubt: (cleanup) => pooled.retire(cleanup),
    };
    return wait > 0 ? enter(options) : enterIfFree(options);
  }

  fencesOf(
    { paths, token, read }: ZooKeeperQueueEntry,
    names: readonly string[],
  ): readonly Fence[] {
    const generation = Number(read ?? 0);
    return names.map((name, i) => issueFence(name, generation, token, `zookeeper:${paths[i]}`));
  }

  move(
    entry: ZooKeeperQueueEntry,
    session: ZooKeeperSession,
    limit: AbortSignal,
  ): Promise<boolean> {
    const { ttl } = session;
    const { holder } = JSON.parse(entry.data) as NodeRecord;
    const data = encodeRecord({ holder, ttl, token: entry.token });
    return entry.move(session, data, limit);
  }

  async cleanUp(entry: ZooKeeperQueueEntry): Promise<true> {
    await entry.leave();
    return true;
  }

  async whenFree(name: string, signal: AbortSignal): Promise<void> {
    const queue = queueOf(this.#options.root, name);
    for (;;) {
      const changed = new Notifier();
      const watch = () => changed.notify();
      const { session, release } = await this.sessions.share(CALL_TTL, signal, 0);
      try {
        const children = (await session.children(queue, { watch, signal })) ?? [];
        if ((await contendersIn(session, queue, children, signal)).length === 0) return;
        // Also called when the session ends.
        await changed.wait({ span: CHECK_EVERY, signal, idle: true });
      } catch (error) {
        signal.throwIfAborted();
        if (!session.signal.aborted) throw error;
      } finally {
        session.unwatch(queue, watch);
        release();
      }
    }
  }

  find(name: string): Promise<FoundLock> {
    return this.#withSession(async (session, signal) => {
      const [, generation] = await Promise.all([
        session.sync(signal),
        this.#generation(session, signal),
      ]);
      const { waiters, ...found } = await this.#find(session, name, generation, signal);
      const queue = await describeWaiters(session, waiters.slice(0, MOST_WAITERS), signal);
      return { ...found, info: { ...found.info, queue } };
    });
  }

  /**
   * Walks all nodes that may have locks with this prefix among their descendants. Skips those below the root that the user
   * may not read: they are of others.
   */
  list(prefix: string): Promise<readonly LockInfo[]> {
    const { root } = this.#options;
    return this.#withSession(async (session, signal) => {
      const [, generation] = await Promise.all([
        session.sync(signal),
        this.#generation(session, signal),
      ]);
      const held: LockInfo[] = [];
      const paths: Path[] = [root];
      while (paths.length > 0) {
        const look = async (path: Path) => {
          const children = (await session.children(path || "/", { signal })) ?? [];
          const contenders = await contendersIn(session, path, children, signal);
          const name = nameOf(root, path);
          if (contenders.length > 0 && name?.startsWith(prefix)) {
            held.push((await this.#find(session, name, generation, signal)).info);
          }
          const others = difference(children, contenders).map((child) => `${path}/${child}`);
          paths.push(...others.filter((each) => mayHold(nameOf(root, each), prefix)));
        };
        const looks = paths.splice(-PAGE).map((path) =>
          look(path).catch((error) => {
            const isOfOthers = hasCode(error, "STORE_REFUSED") && !session.signal.aborted;
            if (path === root || !isOfOthers) throw error;
          }),
        );
        await Promise.all(looks);
      }
      return held.filter(({ holder }) => holder !== undefined).sort(byName);
    });
  }

  raiseGeneration(least: number): Promise<number> {
    return this.#withSession(async (session, signal) => {
      const path = ownPath(this.#options.root, "generation");
      for (;;) {
        const [, node] = await Promise.all([session.sync(signal), session.read(path, { signal })]);
        const generation = Math.max(least, Number(node?.data ?? 0) + 1);
        if (generation > HIGHEST_GENERATION) throw noMoreGenerations();
        const data = String(generation);
        try {
          if (node) await session.write(path, data, { version: node.stat.version, signal });
          else await session.create({ path, data }, signal);
          return generation;
        } catch (error) {
          if (error instanceof NoNodeError) await createPath(session, parentOf(path), { signal });
          else if (!(error instanceof BadVersionError || error instanceof NodeExistsError))
            throw error;
        }
      }
    });
  }

  async close(): Promise<void> {
    if (this.#options.closeZooKeeper) await this.#zookeeper.close();
  }

  /** Calls on a session that needs no lock, within the ttl of that session. */
  async #withSession<T>(
    call: (session: ZooKeeperSession, signal: AbortSignal) => Promise<T>,
    caller?: AbortSignal,
  ): Promise<T> {
    const { signal, ...limit } = deadline(CALL_TTL, noAnswer, caller);
    try {
      const { session, release } = await this.sessions.share(CALL_TTL, signal, 0);
      try {
        return await call(session, signal);
      } catch (error) {
        const isOver = signal.aborted || session.signal.aborted;
        if (!isOver || hasCode(error, "UNKNOWN_OUTCOME", "STORE_REFUSED")) throw error;
        throw new StoreUnavailableError(this.address, "the server does not answer", error);
      } finally {
        release();
      }
    } finally {
      limit[Symbol.dispose]();
    }
  }

  /** The names of nodes are unique: no later holder has this one. */
  #remove(path: Path, limit: AbortSignal): Promise<boolean> {
    const remove = async (session: ZooKeeperSession, signal: AbortSignal) => {
      try {
        await session.remove(path, signal);
        return true;
      } catch (error) {
        if (error instanceof NoNodeError) return false;
        throw error;
      }
    };
    return this.#withSession(remove, limit);
  }

  get #generationPath(): Path {
    return ownPath(this.#options.root, "generation");
  }

  async #generation(session: ZooKeeperSession, signal: AbortSignal): Promise<number> {
    return Number((await session.read(this.#generationPath, { signal }))?.data ?? 0);
  }

  #readIncidents(): Promise<readonly (string | undefined)[]> {
    return this.#withSession(async (session, signal) => {
      await session.sync(signal);
      const slots = Array.from({ length: INCIDENT_SLOTS }, (_, slot) => this.#incidentPath(slot));
      const nodes = await Promise.all(slots.map((path) => session.read(path, { signal })));
      return nodes.map((node) => node?.data);
    });
  }

  #writeIncident(slot: number, data: string): Promise<boolean> {
    return this.#withSession(async (session, signal) => {
      const path = this.#incidentPath(slot);
      await createPath(session, path, { signal });
      await session.write(path, data, { signal });
      return true;
    });
  }

  #incidentPath(slot: number): Path {
    return ownPath(this.#options.root, `incident-${slot}`);
  }

  async #find(
    session: ZooKeeperSession,
    name: string,
    generation: number,
    signal: AbortSignal,
  ): Promise<FoundLock & { readonly waiters: readonly Path[] }> {
    const queue = queueOf(this.#options.root, name);
    for (;;) {
      const children = (await session.children(queue, { signal })) ?? [];
      const contenders = await contendersIn(session, queue, children, signal);
      const [first, ...waiters] = contenders;
      if (first === undefined) {
        return { info: describeLock({ name, ...FREE }), drop: async () => false, waiters: [] };
      }
      const path = `${queue}/${first}`;
      const node = await session.read(path, { signal });
      // The holder may have left meanwhile.
      if (!node) continue;
      const { holder, ttl: expiresIn, token = node.stat.czxid } = decodeRecord(node);
      const fence = formatFence(generation, token);
      const info = describeLock({ name, holder, expiresIn, fence, waiters: waiters.length });
      // The nodes of foreign clients, and of elections, tell when they were created.
      const about = { since: node.stat.createdAt, ...info.about };
      return {
        info: { ...info, about },
        drop: (limit) => this.#remove(path, limit),
        waiters: waiters.map((waiter) => `${queue}/${waiter}`),
      };
    }
  }
}

/** Reads what the waiters say of themselves. */
async function describeWaiters(
  session: ZooKeeperSession,
  paths: readonly Path[],
  signal: AbortSignal,
): Promise<readonly WaiterInfo[]> {
  const nodes = await Promise.all(paths.map((path) => session.read(path, { signal })));
  return nodes.flatMap((node) => {
    if (!node) return [];
    return [{ since: node.stat.createdAt, ...describeWaiter(decodeRecord(node).holder) }];
  });
}

const FREE = { holder: undefined, expiresIn: undefined, fence: undefined, waiters: 0 } as const;

/** Whether the name of this node, or of a descendant, may start with `prefix`. */
function mayHold(name: string | undefined, prefix: string): boolean {
  return name !== undefined && (name.startsWith(prefix) || prefix.startsWith(`${name}/`));
}

function difference(all: readonly string[], some: readonly string[]): readonly string[] {
  const without = new Set(some);
  return all.filter((one) => !without.has(one));
}

function byName(a: LockInfo, b: LockInfo): number {
  return a.name < b.name ? -1 : 1;
}

/** The data of our locks' nodes, for `inspect`. */
interface NodeRecord {
  readonly holder: string;

  /** The timeout of the session that owns the node. ZooKeeper does not tell how much of the timeout is left. */
  readonly ttl: Millis | undefined;

  /** The fencing token, unless it is the node's own czxid: the node was moved to another session. */
  readonly token: Zxid | undefined;
}

function encodeRecord({ holder, ttl, token }: NodeRecord): string {
  return JSON.stringify({ holder, ttl, ...(token !== undefined && { token: String(token) }) });
}

/** Decodes the data of a lock's node; undefined for another node. */
export function recordIn({ data }: Pick<Node, "data">): NodeRecord | undefined {
  try {
    const { holder, ttl, token } = JSON.parse(data);
    if (typeof holder !== "string" || typeof ttl !== "number") return undefined;
    return { holder, ttl, token: token === undefined ? undefined : BigInt(token) };
  } catch {
    return undefined;
  }
}

/** Decodes the data of a node. The holder of a foreign node is its data, if they are text, or else its session. */
function decodeRecord(node: Node): NodeRecord {
  const { data, stat } = node;
  const record = recordIn(node);
  if (record) return record;
  const isText = /^[^\p{Cc}\ufffd]{1,200}$/u.test(data);
  const holder = isText ? data : `session 0x${BigInt.asUintN(64, stat.owner).toString(16)}`;
  return { holder, ttl: undefined, token: undefined };
}
