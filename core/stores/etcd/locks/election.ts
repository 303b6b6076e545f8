import { checkText } from "../../../lock/checks.ts";
import {
  type Election,
  type ElectionQueue,
  electionOn,
  type Leader,
} from "../../../lock/election.ts";
import { Notifier } from "../../../lock/notifier.ts";
import { type Etcd, get, type KeyValue, put, type Revision } from "../client/etcd.ts";
import { isIn } from "../client/names.ts";
import { enter } from "./enter.ts";
import { changeOrCheck, type EntryKeys, queueKeysOf, readWhenAvailable } from "./queue.ts";
import { EtcdQueueEntry } from "./queue-entry.ts";
import type { EtcdSession } from "./session.ts";

export interface EtcdElectionOptions {
  /** The token of a leadership that another process, or an earlier run of this one, has with the session's lease. */
  readonly resume?: Revision;
}

/**
 * Joins an election on the keys of Go's clientv3/concurrency and of `etcdctl elect`. A session is one candidate: a second
 * election of the same session continues with the entry of the first one.
 */
export function etcdElection(
  etcd: Etcd,
  session: EtcdSession,
  prefix: string,
  { resume }: EtcdElectionOptions = {},
): Election {
  checkText("prefix", prefix, 1_000);
  const queue = new EtcdElectionQueue(etcd, session, prefix);
  return electionOn(queue, resume === undefined ? undefined : queue.at(resume));
}

class EtcdElectionQueue implements ElectionQueue<EtcdQueueEntry> {
  readonly store: string;
  readonly session: EtcdSession;
  readonly name: string;
  readonly #etcd: Etcd;
  readonly #queue: string;

  constructor(etcd: Etcd, session: EtcdSession, prefix: string) {
    this.#etcd = etcd;
    this.store = etcd.address;
    this.session = session;
    this.name = prefix;
    this.#queue = `${prefix}/`;
  }

  at(token: Revision): EtcdQueueEntry {
    return EtcdQueueEntry.at(this.#etcd, this.#keys(""), token);
  }

  enter(value: string, signal: AbortSignal): Promise<EtcdQueueEntry> {
    return enter(this.#etcd, this.#keys(value), { signal, adopt: true });
  }

  async write(entry: EtcdQueueEntry, value: string): Promise<boolean> {
    const write = put(entry.key, value, this.session.id);
    const { succeeded } = await this.#etcd.txn({ when: entry.isOurs(), do: [write] });
    return succeeded;
  }

  async first(signal?: AbortSignal): Promise<Leader | undefined> {
    const all = get({ prefix: this.#queue }, { by: "create" });
    const { kvs } = await this.#etcd.range({ ...all, limit: 1 }, signal);
    if (kvs.every((kv) => isIn(this.#queue, kv.key))) return kvs[0] && toLeader(kvs[0]);
    // Keys of nested names come first.
    const candidates = await this.#etcd.range(all, signal);
    const leader = candidates.kvs.find((kv) => isIn(this.#queue, kv.key));
    return leader && toLeader(leader);
  }

  async *changes(signal: AbortSignal): AsyncGenerator<Leader | undefined> {
    const notifier = new Notifier();
    const notify = () => notifier.notify();
    const stop = this.#etcd.watch({ prefix: this.#queue }, { ready: notify, changed: notify });
    try {
      for (;;) {
        await changeOrCheck(notifier, signal);
        yield await readWhenAvailable(() => this.first(signal), signal);
      }
    } finally {
      stop();
    }
  }

  #keys(value: string): EntryKeys {
    const { id, ttl } = this.session;
    return { keys: queueKeysOf([this.#queue], id), lease: id, value, ttl };
  }
}

function toLeader({ key, value, createRevision, modRevision }: KeyValue): Leader {
  return { key, value, token: createRevision, revision: modRevision };
}
