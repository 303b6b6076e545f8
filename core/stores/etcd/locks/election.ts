import { checkText, LONGEST_SPAN } from "../../../lock/checks.ts";
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
import type { LeadershipOptions } from "../../../lock/leadership.ts";
import { Notifier } from "../../../lock/notifier.ts";
import { checkOptionNames, type OptionNames } from "../../../lock/options.ts";
import { readWhenAvailable, retryUntilKnown } from "../../../lock/retry.ts";
import type { SessionPool } from "../../../lock/session-pool.ts";
import {
  type Etcd,
  type Get,
  get,
  type LeaseId,
  put,
  type RangeAnswer,
  type Revision,
} from "../client/etcd.ts";
import { isIn, ownerByKey, ownKey, queueOf } from "../client/names.ts";
import { enter } from "./enter.ts";
import { toGeneration } from "./info.ts";
import { etcdTraits, type LockSession } from "./lock-queues.ts";
import { changeOrCheck, type EntryKeys, queueKeysOf } from "./queue.ts";
import { EtcdQueueEntry } from "./queue-entry.ts";
import type { EtcdSession } from "./session.ts";

export interface EtcdElectionOptions {
  /** The token of a leadership that another process, or an earlier run of this one, has with the session's lease. */
  readonly resume?: Revision;
}

const ELECTION_OPTIONS = { resume: true } satisfies OptionNames<EtcdElectionOptions>;

/**
 * Joins an election on the keys of Go's clientv3/concurrency and of `etcdctl elect`. A session is one candidate: a second
 * election of the same session continues with the entry of the first one.
 */
export function etcdElection(
  etcd: Etcd,
  session: EtcdSession,
  prefix: string,
  options: EtcdElectionOptions = {},
): Election {
  checkText("prefix", prefix, 1_000);
  checkOptionNames("etcdElection", options, ELECTION_OPTIONS);
  const { resume } = options;
  const queue = new EtcdElectionQueue(etcd, { session, name: prefix, queue: `${prefix}/` });
  return electionOn(queue, resume === undefined ? undefined : queue.at(resume));
}

/** The elections of a store, on the keys of its locks. Each has a session of its own. */
export function etcdElections(
  etcd: Etcd,
  sessions: SessionPool<LockSession>,
  prefix: string,
): Elections {
  return {
    async open(name, given) {
      const { ttl, signal = new AbortController().signal } = checkElection(name, given);
      const queue = queueOf(prefix, name);
      const span = toMillis("ttl", ttl, etcdTraits.minTtl, LONGEST_SPAN);
      signal.throwIfAborted();
      const { session, release } = await sessions.own(span, signal);
      const { lease: id, ttl: granted } = session;
      const own = {
        id,
        ttl: granted,
        signal: session.signal,
        remaining: () => session.remaining(),
      };
      const generationKey = ownKey(prefix, "generation");
      const options = { session: own, name, queue, generationKey, close: release };
      return electionOn(new EtcdElectionQueue(etcd, options));
    },
  };
}

interface ElectionQueueOptions {
  readonly session: LeadershipOptions["session"] & { readonly id: LeaseId };
  readonly name: string;

  /** The prefix of the candidates' keys, with the last "/". */
  readonly queue: string;

  /** The key of the generation of fences, for elections that give them. */
  readonly generationKey?: string;
  readonly close?: () => void;
}

class EtcdElectionQueue implements ElectionQueue<EtcdQueueEntry> {
  readonly store: string;
  readonly session: ElectionQueueOptions["session"];
  readonly name: string;
  readonly close: () => void;
  readonly #etcd: Etcd;
  readonly #queue: string;
  readonly #generationKey: string | undefined;

  constructor(etcd: Etcd, options: ElectionQueueOptions) {
    const { session, name, queue, generationKey, close = () => {} } = options;
    this.#etcd = etcd;
    this.store = etcd.address;
    this.session = session;
    this.name = name;
    this.close = close;
    this.#queue = queue;
    this.#generationKey = generationKey;
  }

  at(token: Revision): EtcdQueueEntry {
    return EtcdQueueEntry.at(this.#etcd, this.#keys(""), token);
  }

  enter(value: string, signal: AbortSignal): Promise<EtcdQueueEntry> {
    const key = this.#generationKey;
    const read = key === undefined ? {} : { read: get(key) };
    return enter(this.#etcd, this.#keys(value), { signal, adopt: true, ...read });
  }

  fenceOf({ read, token, key }: EtcdQueueEntry): Fence | undefined {
    return read && issueFence(this.name, toGeneration(read), token, ownerByKey(key));
  }

  async write(entry: EtcdQueueEntry, value: string): Promise<boolean> {
    const write = put(entry.key, value, this.session.id);
    const { succeeded } = await this.#etcd.txn({ when: entry.isOurs(), do: [write] });
    return succeeded;
  }

  async first(signal?: AbortSignal): Promise<Leader | undefined> {
    const all = get({ prefix: this.#queue }, { by: "create" });
    const [generation, { kvs }] = await Promise.all([
      this.#generationKey === undefined ? undefined : this.#read(get(this.#generationKey), signal),
      this.#read({ ...all, limit: 1 }, signal),
    ]);
    const isNested = !kvs.every((kv) => isIn(this.#queue, kv.key));
    // Keys of nested names come first.
    const candidates = isNested ? (await this.#read(all, signal)).kvs : kvs;
    const leader = candidates.find((kv) => isIn(this.#queue, kv.key));
    if (!leader) return undefined;
    const { key, value, createRevision: token, modRevision: revision } = leader;
    const fence = generation && formatFence(toGeneration(generation), token);
    return { key, value, token, revision, fence };
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

  #read(read: Get, signal: AbortSignal | undefined): Promise<RangeAnswer> {
    const what = "the leader was read";
    const once = (limit: AbortSignal) => this.#etcd.range(read, limit);
    return retryUntilKnown(this.#etcd.address, what, signal, once);
  }

  #keys(value: string): EntryKeys {
    const { id, ttl } = this.session;
    return { keys: queueKeysOf([this.#queue], id), lease: id, value, ttl };
  }
}
