import { releaseUntilKnown, requestPauses, withinAttempt } from "../../../lock/attempts.ts";
import { isCertain, StoreUnavailableError } from "../../../lock/errors.ts";
import { retry } from "../../../lock/retry.ts";
import { NotQueuedError } from "../../../lock/session-queue.ts";
import type { Millis } from "../../../lock/time.ts";
import {
  type Compare,
  type Etcd,
  type Get,
  get,
  isAbsent,
  NoLeaseError,
  type OpAnswer,
  put,
  type TxnAnswer,
} from "../client/etcd.ts";
import { refusalIn } from "../client/failure.ts";
import { hex } from "./lease.ts";
import { contendersIn, type EntryKeys, hasNested, keysIn } from "./queue.ts";
import { type EtcdEntered, EtcdQueueEntry, removalOf } from "./queue-entry.ts";

export interface EtcdEnterOptions {
  readonly signal: AbortSignal;

  /** How long the caller waits for the outcome. */
  readonly patience?: Millis | undefined;

  /** Whether existing keys of this lease are ours, whichever request wrote them. Default false. */
  readonly adopt?: boolean;

  /** An additional read in the same transaction. */
  readonly read?: Get;

  /** Called when a late request may still write the keys: only the end of the lease rules that out. */
  readonly onDoubt?: () => void;
}

/**
 * Enters the queues, or finds the entry that these keys are already. When it rejects, no keys are left; with a
 * NotQueuedError when the lease is gone.
 */
export async function enter(
  etcd: Etcd,
  keys: EntryKeys,
  options: EtcdEnterOptions,
): Promise<EtcdQueueEntry> {
  return new EtcdQueueEntry(etcd, keys, await new EnterRequest(etcd, keys, options).enter());
}

/**
 * Enters the queues only if they are empty: one round trip, and no write otherwise. Resolves to undefined then. Among
 * keys of nested names, it enters and leaves again unless it is the first.
 */
export async function enterIfFree(
  etcd: Etcd,
  keys: EntryKeys,
  options: EtcdEnterOptions,
): Promise<EtcdQueueEntry | undefined> {
  const request = new EnterRequest(etcd, keys, options);
  const entered = await request.enterIfFree();
  if (entered !== "hidden") return entered && new EtcdQueueEntry(etcd, keys, entered);
  const entry = new EtcdQueueEntry(etcd, keys, await request.enter());
  let isFirst = false;
  try {
    isFirst = await entry.isFirst(options.signal);
  } finally {
    if (!isFirst) await request.withdraw();
  }
  return isFirst ? entry : undefined;
}

/** A request to create the keys of an entry, repeated when its answer is lost. */
class EnterRequest {
  readonly #etcd: Etcd;
  readonly #entry: EntryKeys;
  readonly #options: EtcdEnterOptions;

  constructor(etcd: Etcd, entry: EntryKeys, options: EtcdEnterOptions) {
    this.#etcd = etcd;
    this.#entry = entry;
    this.#options = options;
  }

  async enter(): Promise<EtcdEntered> {
    const { keys, lease } = this.#entry;
    // Of each queue, all keys but one of those read are ours: our keys of nested names have the same revision.
    const lasts = keys.map(({ queue }) => {
      const ours = keys.filter(({ key }) => key.startsWith(queue));
      return keysIn(queue, { limit: ours.length + 1 });
    });
    const absent = keys.map(({ key }) => isAbsent(key));
    const entered = await this.#send(absent, lasts, (answer, isRepeated) => {
      const { answers, revision, succeeded } = answer;
      if (!succeeded) return this.#existing(answer, isRepeated);
      const queues = answers.slice(-keys.length).map((queue) => ({
        ...queue,
        kvs: queue.kvs.filter(({ createRevision }) => createRevision < revision),
      }));
      const entered = { token: revision, isAdopted: false, read: this.#readIn(answer) };
      if (hasNested(keys, queues)) return { ...entered, predecessors: undefined, isHidden: true };
      // Besides our key and its predecessor, the queue has more.
      const isFar = queues.every(({ count }) => count > 2);
      return { ...entered, predecessors: contendersIn(keys, queues), isFar };
    });
    if (entered) return entered;
    throw new NotQueuedError(hex(lease), "has keys in these queues that it did not leave");
  }

  /** Resolves to undefined when a queue has a contender; to "hidden" when only keys of nested names are there. */
  async enterIfFree(): Promise<EtcdEntered | "hidden" | undefined> {
    const { keys } = this.#entry;
    const empty = keys.map(({ queue }) => isAbsent({ prefix: queue }));
    const firsts = keys.map(({ queue }) => keysIn(queue, { order: "ascending", limit: 1 }));
    let isHidden = false;
    const entered = await this.#send(empty, firsts, (answer, isRepeated) => {
      const { answers, revision, succeeded } = answer;
      if (succeeded) {
        return { token: revision, isAdopted: false, read: this.#readIn(answer), predecessors: [] };
      }
      const queues = answers.slice(-keys.length);
      isHidden = hasNested(keys, queues) && contendersIn(keys, queues).length === 0;
      const entered = this.#existing(answer, isRepeated);
      // Keys that were there before may wait behind others.
      const isFirst = queues.every(({ kvs: [first] }) => first?.createRevision === entered?.token);
      return isFirst ? entered : undefined;
    });
    return !entered && isHidden && !(await this.#isBusy()) ? "hidden" : entered;
  }

  async #isBusy(): Promise<boolean> {
    const { keys, ttl } = this.#entry;
    const read = { when: [], do: keys.map(({ queue }) => keysIn(queue, {})) };
    const { answers } = await withinAttempt(
      (limit) => this.#etcd.txn(read, limit),
      ttl,
      this.#options.signal,
    );
    return contendersIn(keys, answers).length > 0;
  }

  /** Repeats a request whose answer was lost: the repetition finds the keys that the lost one has written. */
  async #send(
    when: readonly Compare[],
    reads: readonly Get[],
    toEntered: (answer: TxnAnswer, isRepeated: boolean) => EtcdEntered | undefined,
  ): Promise<EtcdEntered | undefined> {
    const { keys, lease, value, ttl } = this.#entry;
    const { signal, patience, read, onDoubt = () => {} } = this.#options;
    const puts = keys.map(({ key }) => put(key, value, lease));
    const existing = keys.map(({ key }) => get(key));
    const also = read ? [read, ...reads] : reads;
    const txn = { when, do: [...puts, ...also], otherwise: [...existing, ...also] };
    const pauseOf = requestPauses(patience);
    const attempt = async (count: number) => {
      const send = (limit: AbortSignal) => this.#etcd.txn(txn, limit);
      const answer = await withinAttempt(send, ttl, signal, patience);
      const entered = toEntered(answer, count > 0);
      // The request whose answer was lost has not been executed, and may still be.
      if (count > 0 && (answer.succeeded || !entered)) onDoubt();
      return entered;
    };
    return retry(attempt, async (error, count) => {
      if (error instanceof NoLeaseError) throw new NotQueuedError(hex(lease));
      const isKnown = isCertain(error);
      if (isKnown && count === 0) return undefined;
      const refusal = refusalIn(error);
      const pause = isKnown || refusal || signal.aborted ? undefined : pauseOf(count);
      if (pause !== undefined) return pause;
      onDoubt();
      await this.withdraw();
      signal.throwIfAborted();
      if (isKnown) throw error;
      const problem = `the server did not answer ${count + 1} lock requests`;
      throw refusal ?? new StoreUnavailableError(this.#etcd.address, problem, error);
    });
  }

  /**
   * Returns the entry that our keys are already, if all of them exist under this lease since one revision: a request of
   * ours has written them and its answer was lost, or they may be adopted. Other keys belong to another entry.
   */
  #existing(answer: TxnAnswer, isRepeated: boolean): EtcdEntered | undefined {
    const { keys, lease, value } = this.#entry;
    const { adopt = false } = this.#options;
    if (!isRepeated && !adopt) return undefined;
    const kvs = answer.answers.slice(0, keys.length).flatMap(({ kvs }) => kvs);
    const [first] = kvs;
    const ours = kvs.every(
      (kv) =>
        kv.lease === lease &&
        kv.createRevision === first?.createRevision &&
        (adopt || kv.value === value),
    );
    if (!first || !ours || kvs.length < keys.length) return undefined;
    const { createRevision: token } = first;
    return { token, isAdopted: true, read: this.#readIn(answer), predecessors: undefined };
  }

  #readIn({ answers }: TxnAnswer): OpAnswer | undefined {
    return this.#options.read && answers[this.#entry.keys.length];
  }

  /** Removes the keys under our lease, if they were written. */
  async withdraw(): Promise<void> {
    const { keys, lease, value, ttl } = this.#entry;
    const { onDoubt = () => {} } = this.#options;
    const removals = keys.map(({ key }) => removalOf(key, value, lease));
    await releaseUntilKnown({
      drop: async (limit) => {
        await this.#etcd.txn({ when: [], do: removals }, limit);
        return true;
      },
      store: this.#etcd.address,
      names: keys.map(({ queue }) => queue),
      ttl,
      remaining: 0,
    }).catch(onDoubt);
  }
}
