import { follow } from "../../../lock/abort.ts";
import { checkText } from "../../../lock/checks.ts";
import {
  type Election,
  type ElectionQueue,
  electionOn,
  type Leader,
} from "../../../lock/election.ts";
import { Notifier } from "../../../lock/notifier.ts";
import { parentOf } from "../client/names.ts";
import { NoNodeError, type Path, type ZooKeeperSession } from "../client/zookeeper.ts";
import { enter } from "./enter.ts";
import { contendersIn, createPath, createQueue } from "./queue.ts";
import type { ZooKeeperQueueEntry } from "./queue-entry.ts";

/** Joins an election below this path, which is created if missing. Each election object is a candidate of its own. */
export function zookeeperElection(session: ZooKeeperSession, path: Path): Election {
  checkText("path", path, 1_000);
  if (!/^(\/[^/]+)+$/.test(path)) throw new RangeError('the path must be one such as "/leader"');
  return electionOn(new ZooKeeperElectionQueue(session, path));
}

class ZooKeeperElectionQueue implements ElectionQueue<ZooKeeperQueueEntry> {
  readonly store: string;
  readonly session: ZooKeeperSession;
  readonly name: Path;

  constructor(session: ZooKeeperSession, path: Path) {
    this.store = session.address;
    this.session = session;
    this.name = path;
  }

  enter(data: string, signal: AbortSignal): Promise<ZooKeeperQueueEntry> {
    const { session, name } = this;
    const { ttl } = session;
    const queues = [name];
    const root = parentOf(name);
    return enter({ session, root, queues, data, ttl, signal, onDoubt: () => {} });
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
      await this.session.sync(scope.signal);
      for (;;) {
        leader = await this.#watch(scope.signal, watch);
        yield leader;
        await notifier.wait({ signal: scope.signal });
      }
    } finally {
      this.session.unwatch(this.name, watch);
      if (leader) this.session.unwatch(leader.key, watch);
      scope[Symbol.dispose]();
    }
  }

  /** Resolves to the leader, or to undefined when there is none; calls the watch when that may have changed. */
  async #watch(signal: AbortSignal, watch: () => void): Promise<Leader | undefined> {
    for (;;) {
      const leader = await this.#read(signal, watch);
      if (leader) return leader;
      const children = await this.session.children(this.name, { watch, signal });
      const contenders = await contendersIn(this.session, this.name, children ?? [], signal);
      if (children && contenders.length === 0) return undefined;
      if (children) continue;
      await createPath(this.session, parentOf(this.name), { signal });
      await createQueue(this.session, this.name, signal);
    }
  }

  async #read(signal?: AbortSignal, watch?: () => void): Promise<Leader | undefined> {
    const options = { ...(signal && { signal }) };
    for (;;) {
      const children = await this.session.children(this.name, options);
      const [first] = await contendersIn(this.session, this.name, children ?? [], signal);
      if (first === undefined) return undefined;
      const key = `${this.name}/${first}`;
      const node = await this.session.read(key, { ...options, ...(watch && { watch }) });
      // The leader may have resigned meanwhile.
      if (!node) continue;
      const { czxid, mzxid } = node.stat;
      return { key, value: node.data, token: czxid, revision: mzxid };
    }
  }
}
