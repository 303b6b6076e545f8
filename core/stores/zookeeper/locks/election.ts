import { follow } from "../../../lock/abort.ts";
import { LONGEST_SPAN } from "../../../lock/checks.ts";
import { toMillis } from "../../../lock/duration.ts";
import {
  checkElection,
  type Election,
  type ElectionQueue,
  type Elections,
  electionOn,
  type Leader,
} from "../../../lock/election.ts";
import { type Fence, formatFence, issueFence } from "../../../lock/fence.ts";
import { Notifier } from "../../../lock/notifier.ts";
import { readWhenAvailable } from "../../../lock/retry.ts";
import type { SessionPool } from "../../../lock/session-pool.ts";
import { keepProcessAlive } from "../../../lock/time.ts";
import { checkPath, ownPath, parentOf, queueOf } from "../client/names.ts";
import { NoNodeError, type Path, type ZooKeeperSession } from "../client/zookeeper.ts";
import { enter } from "./enter.ts";
import { recordIn, zookeeperTraits } from "./lock-queues.ts";
import { contendersIn, createPath, createQueue } from "./queue.ts";
import type { ZooKeeperQueueEntry } from "./queue-entry.ts";

/** Joins an election below this path, which is created if missing. Each election object is a candidate of its own. */
export function zookeeperElection(session: ZooKeeperSession, path: Path): Election {
  checkPath("path", path, 'one such as "/leader"');
  return electionOn(
    new ZooKeeperElectionQueue({ session, name: path, path, root: parentOf(path) }),
  );
}

/**
 * The elections of a store, at the paths of its locks. Each has a session of its own.
 *
 * @internal
 */
export function zookeeperElections(sessions: SessionPool<ZooKeeperSession>, root: Path): Elections {
  return {
    async open(name, given) {
      const { ttl, signal = new AbortController().signal } = checkElection(name, given);
      const span = toMillis("ttl", ttl, zookeeperTraits.minTtl, LONGEST_SPAN);
      signal.throwIfAborted();
      const { session, release } = await sessions.own(span, signal);
      const place = { name, path: queueOf(root, name), root };
      const generationPath = ownPath(root, "generation");
      const options = { session, ...place, generationPath, close: release };
      return electionOn(new ZooKeeperElectionQueue(options));
    },
  };
}

interface ElectionQueueOptions {
  readonly session: ZooKeeperSession;
  readonly name: string;

  /** The parent of the candidates' nodes, and the ancestor below which it is created. */
  readonly path: Path;
  readonly root: Path;

  /** The node of the generation of fences, for elections that give them. */
  readonly generationPath?: Path;
  readonly close?: () => void;
}

class ZooKeeperElectionQueue implements ElectionQueue<ZooKeeperQueueEntry> {
  readonly store: string;
  readonly session: ZooKeeperSession;
  readonly name: string;
  readonly close: () => void;
  readonly #path: Path;
  readonly #root: Path;
  readonly #generationPath: Path | undefined;

  constructor({
    session,
    name,
    path,
    root,
    generationPath,
    close = () => {},
  }: ElectionQueueOptions) {
    this.store = session.address;
    this.session = session;
    this.name = name;
    this.close = close;
    this.#path = path;
    this.#root = root;
    this.#generationPath = generationPath;
  }

  enter(data: string, signal: AbortSignal): Promise<ZooKeeperQueueEntry> {
    const { session } = this;
    const { ttl } = session;
    const place = { root: this.#root, queues: [this.#path] };
    const also = this.#generationPath === undefined ? {} : { also: this.#generationPath };
    return enter({ session, ...place, ...also, data, ttl, signal, onDoubt: () => {} });
  }

  fenceOf({ read, token, key }: ZooKeeperQueueEntry): Fence | undefined {
    if (this.#generationPath === undefined) return undefined;
    return issueFence(this.name, Number(read ?? 0), token, `zookeeper:${key}`);
  }

  async write({ key }: ZooKeeperQueueEntry, value: string): Promise<boolean> {
    try {
      await this.session.write(key, value);
      return true;
    } catch (error) {
      if (error instanceof NoNodeError) return false;
      throw error;
    }
  }

  async first(signal?: AbortSignal): Promise<Leader | undefined> {
    const [, leader] = await Promise.all([this.session.sync(signal), this.#read(signal)]);
    return leader;
  }

  async *changes(signal: AbortSignal): AsyncGenerator<Leader | undefined> {
    const scope = follow(signal, this.session.signal);
    // Without a timer: a watch lives as long as its connection, whose end notifies, too.
    const notifier = new Notifier();
    const watch = () => notifier.notify();
    let leader: Leader | undefined;
    try {
      await readWhenAvailable(() => this.session.sync(scope.signal), scope.signal);
      for (;;) {
        leader = await readWhenAvailable(() => this.#watch(scope.signal, watch), scope.signal);
        yield leader;
        // A watch does not keep the process alive.
        const letExit = keepProcessAlive();
        await notifier.wait({ signal: scope.signal }).finally(letExit);
      }
    } finally {
      this.session.unwatch(this.#path, watch);
      if (leader) this.session.unwatch(leader.key, watch);
      scope[Symbol.dispose]();
    }
  }

  /** Resolves to the leader, or to undefined when there is none; calls the watch when that may have changed. */
  async #watch(signal: AbortSignal, watch: () => void): Promise<Leader | undefined> {
    for (;;) {
      const leader = await this.#read(signal, watch);
      if (leader) return leader;
      const children = await this.session.children(this.#path, { watch, signal });
      const contenders = await contendersIn(this.session, this.#path, children ?? [], signal);
      if (children && contenders.length === 0) return undefined;
      if (children) continue;
      await createPath(this.session, parentOf(this.#path), { root: this.#root, signal });
      await createQueue(this.session, this.#path, signal);
    }
  }

  async #read(signal?: AbortSignal, watch?: () => void): Promise<Leader | undefined> {
    const options = { ...(signal && { signal }) };
    for (;;) {
      const children = await this.session.children(this.#path, options);
      const [first] = await contendersIn(this.session, this.#path, children ?? [], signal);
      if (first === undefined) return undefined;
      const key = `${this.#path}/${first}`;
      const node = await this.session.read(key, { ...options, ...(watch && { watch }) });
      // The leader may have resigned meanwhile.
      if (!node) continue;
      const { czxid, mzxid: revision, createdAt: since } = node.stat;
      // The node of a lock that has moved to another session keeps the token, which is an earlier zxid.
      const kept = recordIn(node)?.token ?? czxid;
      const token = kept < czxid ? kept : czxid;
      const fence = await this.#fenceTextOf(token, options);
      return { key, value: node.data, token, revision, fence, since };
    }
  }

  async #fenceTextOf(
    token: bigint,
    options: { readonly signal?: AbortSignal },
  ): Promise<string | undefined> {
    if (this.#generationPath === undefined) return undefined;
    const node = await this.session.read(this.#generationPath, options);
    return formatFence(Number(node?.data ?? 0), token);
  }
}
