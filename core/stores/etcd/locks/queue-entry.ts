import { follow } from "../../../lock/abort.ts";
import type { CandidateEntry } from "../../../lock/election.ts";
import { hasCode, SessionExpiredError } from "../../../lock/errors.ts";
import { Notifier } from "../../../lock/notifier.ts";
import { readWhenAvailable } from "../../../lock/retry.ts";
import { after, type Millis } from "../../../lock/time.ts";
import {
  type Compare,
  type Etcd,
  type Get,
  get,
  isCreated,
  type KeyChange,
  type KeyValue,
  type LeaseId,
  type OpAnswer,
  put,
  type Revision,
  remove,
  type TxnOp,
} from "../client/etcd.ts";
import { hex } from "./lease.ts";
import {
  changeOrCheck,
  contendersIn,
  type EntryKeys,
  hasNested,
  keysIn,
  type QueueKey,
} from "./queue.ts";

/** An entry as the answer to its creation describes it. */
export interface EtcdEntered {
  /** The create revision of its keys. */
  readonly token: Revision;

  /** Whether the keys existed before. */
  readonly isAdopted: boolean;

  /** The answer to the additional read. */
  readonly read: OpAnswer | undefined;

  /** The predecessor in each queue; undefined where the answer does not tell. */
  readonly predecessors: readonly KeyValue[] | undefined;

  /** Whether the predecessor has a predecessor in each queue. */
  readonly isFar?: boolean;

  /** Whether keys of nested names hide the predecessors. */
  readonly isHidden?: boolean;
}

/**
 * An entry in one queue, or in several at once: one transaction creates all of its keys, so they have one revision. The
 * entry holds the lock when no earlier key is before its own in any of the queues. An entry only waits for keys of earlier
 * revisions, so no two entries wait for each other. Keys of nested names, which share the prefix of the queue, are skipped.
 *
 * Only the creation proves anything, because it goes through the log. The number of predecessors can only fall: once a
 * read has seen none, a stale read is as good as a fresh one. No read proves that our own key still exists: the lease is
 * alive by our clocks, the guard tells when the key is deleted, and the resource refuses late writes.
 */
export class EtcdQueueEntry implements CandidateEntry {
  readonly token: Revision;
  readonly isAdopted: boolean;
  readonly keys: readonly QueueKey[];
  readonly value: string;

  /** The answer to the additional read on entering. */
  readonly read: OpAnswer | undefined;

  /** How often one mutex of the session has left the entry to the next one. */
  handOvers = 0;
  readonly #etcd: Etcd;
  #lease: LeaseId;
  #isFar: boolean;
  #isHidden: boolean;
  #predecessors: readonly KeyValue[] | undefined;

  constructor(etcd: Etcd, { keys, lease, value }: EntryKeys, entered: EtcdEntered) {
    this.#etcd = etcd;
    this.keys = keys;
    this.value = value;
    this.#lease = lease;
    this.token = entered.token;
    this.isAdopted = entered.isAdopted;
    this.read = entered.read;
    this.#predecessors = entered.predecessors;
    this.#isFar = entered.isFar ?? false;
    this.#isHidden = entered.isHidden ?? false;
  }

  /** Resumes an entry that was created before, maybe by another process. */
  static at(etcd: Etcd, keys: EntryKeys, token: Revision): EtcdQueueEntry {
    const entered = { token, isAdopted: true, read: undefined, predecessors: undefined };
    return new EtcdQueueEntry(etcd, keys, entered);
  }

  /** The first of its keys. */
  get key(): string {
    return this.keys[0]?.key ?? "";
  }

  /** Conditions of a transaction that hold as long as the keys are those of this entry. */
  isOurs(): readonly Compare[] {
    return this.keys.map(({ key }) => isCreated(key, this.token));
  }

  /** Resolves to whether no predecessor is left now. */
  async isFirst(signal: AbortSignal): Promise<boolean> {
    this.#predecessors = await this.#readPredecessors(signal);
    return this.#predecessors.length === 0;
  }

  async waitForTurn(signal: AbortSignal): Promise<void> {
    this.#predecessors ??= await this.#readPredecessors(signal);
    if (this.#predecessors.length === 0) return;
    const gone = new AbortController();
    const scope = follow(signal, gone.signal);
    const stopGuard = this.guard((loss) => gone.abort(loss), WAITER_GUARD_AFTER);
    try {
      for (let [next] = this.#predecessors; next; [next] = this.#predecessors) {
        this.#predecessors = await this.#outlast(next, scope.signal);
      }
    } finally {
      stopGuard();
      scope[Symbol.dispose]();
    }
  }

  guard(onGone: (loss: SessionExpiredError) => void, span = GUARD_AFTER): () => void {
    const start = () => {
      const over = new AbortController();
      stop = () => over.abort();
      void this.#watchOwn(onGone, over.signal).catch(() => {});
    };
    let stop = after(span, start, { idle: true });
    return () => stop();
  }

  async leave(limit?: AbortSignal): Promise<boolean> {
    const keys = this.keys.map(({ key }) => key);
    // When some keys are gone or belong to another entry, the rest is removed one by one.
    const otherwise = keys.length > 1 ? keys.map((key) => this.#removal(key)) : [];
    const leaving = { when: this.isOurs(), do: keys.map(remove), otherwise };
    const { succeeded } = await this.#etcd.txn(leaving, limit);
    return succeeded;
  }

  /** Attaches the keys to another lease, in the same place. Resolves to false when they are no longer ours. */
  async move(lease: LeaseId, limit?: AbortSignal): Promise<boolean> {
    const moves = this.keys.map(({ key }) => put(key, this.value, lease));
    const { succeeded } = await this.#etcd.txn({ when: this.isOurs(), do: moves }, limit);
    if (succeeded) this.#lease = lease;
    return succeeded;
  }

  /** Watches our keys until the signal aborts, or one of them is gone. */
  async #watchOwn(onGone: (loss: SessionExpiredError) => void, signal: AbortSignal): Promise<void> {
    const notifier = new Notifier();
    const changed = (changes: readonly KeyChange[]) => {
      if (changes.some(({ type }) => type === "remove")) notifier.notify();
    };
    const watcher = { ready: () => notifier.notify(), changed };
    const stops = this.keys.map(({ key }) => this.#etcd.watch(key, watcher));
    try {
      do await changeOrCheck(notifier, signal, { idle: true });
      while (await this.#mayExist(signal));
      onGone(this.#expired());
    } finally {
      for (const stop of stops) stop();
    }
  }

  /** Resolves to false only when etcd says that a key is gone: a read that was refused is repeated later. */
  async #mayExist(signal: AbortSignal): Promise<boolean> {
    // The read makes a member that lags behind catch up before it compares.
    const mine = { when: this.isOurs(), do: [get(this.key, { keysOnly: true })] };
    try {
      const { succeeded } = await readWhenAvailable(() => this.#etcd.txn(mine, signal), signal);
      return succeeded;
    } catch (error) {
      if (hasCode(error, "STORE_REFUSED")) return true;
      throw error;
    }
  }

  /**
   * Resolves to the predecessor in each queue; an empty list means that we hold the lock.
   *
   * The data of one member are enough once they include the revision `since`.
   */
  async #readPredecessors(signal: AbortSignal, since?: Revision): Promise<readonly KeyValue[]> {
    const read = (serializable: boolean) => {
      const look = { when: this.isOurs(), do: this.#reads(serializable) };
      return readWhenAvailable(() => this.#etcd.txn(look, signal), signal);
    };
    let seen = await read(since !== undefined);
    if (since !== undefined && (seen.revision < this.token || seen.revision < since)) {
      seen = await read(false);
    }
    if (!seen.succeeded) throw this.#expired();
    if (this.#isHidden || !hasNested(this.keys, seen.answers)) {
      return contendersIn(this.keys, seen.answers);
    }
    this.#isHidden = true;
    return this.#readPredecessors(signal, since);
  }

  #reads(serializable: boolean): readonly Get[] {
    const options = { createdBy: this.token - 1n, serializable };
    const limit = this.#isHidden ? {} : { limit: 1 };
    return this.keys.map(({ queue }) => keysIn(queue, { ...options, ...limit }));
  }

  /** Waits until a predecessor is gone. Resolves to the predecessors that are left. */
  async #outlast(predecessor: KeyValue, signal: AbortSignal): Promise<readonly KeyValue[]> {
    const notifier = new Notifier();
    let changedAt: Revision | undefined;
    const notify = (revision: Revision) => {
      changedAt = revision;
      notifier.notify();
    };
    const patience = this.#isFar ? FAR_LOOK_AFTER : 0;
    this.#isFar = false;
    let cancel = () => {};
    const ready = (revision: Revision) => {
      cancel();
      if (patience === 0) notify(revision);
      else cancel = after(patience, () => notify(revision));
    };
    const stop = this.#etcd.watch(predecessor.key, {
      ready,
      changed: (changes) => {
        const removal = changes.find(({ type }) => type === "remove");
        if (removal) notify(removal.modRevision);
      },
    });
    try {
      for (;;) {
        await changeOrCheck(notifier, signal);
        // The answer of a proxy may lack the revision at which the watch starts.
        const since = changedAt || undefined;
        changedAt = undefined;
        const left = await this.#readPredecessors(signal, since);
        // A new key may have the name of the old one.
        const { createRevision: old } = predecessor;
        if (!left.some(({ createRevision }) => createRevision === old)) return left;
      }
    } finally {
      cancel();
      stop();
    }
  }

  #removal(key: string): TxnOp {
    return { op: "txn", txn: { when: [isCreated(key, this.token)], do: [remove(key)] } };
  }

  #expired(): SessionExpiredError {
    return new SessionExpiredError(hex(this.#lease), "has lost its place in the queue");
  }
}

/** How long an entry holds a lock before its keys are watched: most locks are released sooner. */
const GUARD_AFTER: Millis = 50;

/** How long an entry waits before its keys are watched: an entry whose turn comes sooner has just read them. */
const WAITER_GUARD_AFTER: Millis = 500;

/**
 * When to look for changes from before the watch stood, where they are unlikely: an entry in the middle of the queue was
 * given up just then, or had a very short turn. Most waiters get a notification of their own turn before that.
 */
const FAR_LOOK_AFTER: Millis = 250;

/** Removes a key with this value and lease, and no other key of the same name. */
export function removalOf(key: string, value: string, lease: LeaseId): TxnOp {
  const when: Compare[] = [
    { keys: key, target: "lease", is: "=", than: lease },
    { keys: key, target: "value", is: "=", than: value },
  ];
  return { op: "txn", txn: { when, do: [remove(key)] } };
}
