import {
  type Change,
  type Compare,
  type Etcd,
  type Get,
  get,
  isAbsent,
  isCreated,
  type KeyValue,
  type Lease,
  NoLeaseError,
  type Op,
  type OpAnswer,
  put,
  type Revision,
  remove,
  type TxnAnswer,
} from "../../etcd/etcd.ts";
import { sleep } from "../../lock/abort.ts";
import { answerTo, giveBack, pause } from "../../lock/answers.ts";
import { Bell } from "../../lock/bell.ts";
import {
  hasCode,
  isCertain,
  SessionExpiredError,
  StoreUnavailableError,
} from "../../lock/errors.ts";
import { NotEnteredError } from "../../lock/lent.ts";
import { after, type Millis } from "../../lock/time.ts";
import { hex } from "./lease.ts";

/** Where to stand: a key of one's own in each of one or more queues. */
export interface Spot {
  /** The prefix that all contenders' keys share, up to and with the last "/". */
  readonly queue: string;
  readonly key: string;
}

export interface Standing {
  readonly spots: readonly Spot[];
  readonly lease: Lease;
  readonly value: string;
  readonly ttl: Millis;
}

export interface Entering {
  readonly signal: AbortSignal;

  /** Whether keys of this lease that stand there already are ours, however they came there. Default false. */
  readonly adopt?: boolean;

  /** One more thing to read in the same transaction. */
  readonly read?: Get;

  /** Called when the keys may still be written after the call has failed: only the lease's end is certain. */
  readonly onDoubt?: () => void;
}

/** The key names of `lease` in these queues, as Go names them. */
export function spotsOf(queues: readonly string[], lease: Lease): readonly Spot[] {
  return queues.map((queue) => ({ queue, key: queue + hex(lease) }));
}

/**
 * A place in one queue, or in several at once: all of its keys are created in one transaction, so they have
 * one revision. Whoever has no earlier key before it in any of its queues holds them all. Waits always go
 * from a later revision to an earlier one, so no two ever wait for each other.
 *
 * Only the creation proves anything: it goes through the log. The keys before ours can only become fewer, so
 * once a read has seen none of them, a stale read is as good as a fresh one. That our own key is still there is
 * never proven by reading: the lease is alive by our clocks, the guard tells when the key goes, and what is
 * late is refused at the resource.
 */
export class Place {
  readonly revision: Revision;

  /** How often it was left to somebody else of the same session. */
  handOvers = 0;

  /** What was read on entering. */
  readonly read: OpAnswer | undefined;
  readonly #etcd: Etcd;
  readonly #standing: Standing;
  readonly #isNew: boolean;
  #lease: Lease;

  /** Others stand between us and the holder: it is early enough to look a while after the watch stands. */
  #isFar: boolean;

  /** Who is before us, as far as it is known already. */
  #ahead: readonly KeyValue[] | undefined;

  private constructor(etcd: Etcd, standing: Standing, entered: Entered) {
    this.#etcd = etcd;
    this.#standing = standing;
    this.#lease = standing.lease;
    this.revision = entered.revision;
    this.read = entered.read;
    this.#ahead = entered.ahead;
    this.#isNew = entered.ahead !== undefined;
    this.#isFar = entered.isFar ?? false;
  }

  /** A place that was entered before, perhaps by another process. */
  static at(etcd: Etcd, standing: Standing, revision: Revision): Place {
    return new Place(etcd, standing, { revision, read: undefined, ahead: undefined });
  }

  /**
   * Stands in line, or finds the place where these keys stand already. Rejects with nothing left behind; with a
   * NotEnteredError when the lease is gone.
   */
  static async enter(etcd: Etcd, standing: Standing, entering: Entering): Promise<Place> {
    return new Place(etcd, standing, await new Entry(etcd, standing, entering).line());
  }

  /**
   * Enters only where nobody stands: one round trip, and nothing is written when somebody does. Resolves to
   * undefined then.
   */
  static async enterFree(
    etcd: Etcd,
    standing: Standing,
    entering: Entering,
  ): Promise<Place | undefined> {
    const entered = await new Entry(etcd, standing, entering).free();
    return entered && new Place(etcd, standing, entered);
  }

  /** Whether entering has made the keys, rather than found them. */
  get isNew(): boolean {
    return this.#isNew;
  }

  get keys(): readonly string[] {
    return this.#standing.spots.map(({ key }) => key);
  }

  /** What a late request may write once the place is left. */
  get suspects(): readonly Suspect[] {
    return this.keys.map((key) => ({ key, value: this.#standing.value }));
  }

  /** For a caller's own transaction: true as long as the place is still this one. */
  isOurs(): readonly Compare[] {
    return this.keys.map((key) => isCreated(key, this.revision));
  }

  /**
   * Resolves when nobody is before us any more. Rejects with a SessionExpiredError as soon as a key of ours
   * is gone or `session` aborts, and with the signal's reason.
   */
  async turn(session: AbortSignal, signal: AbortSignal): Promise<void> {
    this.#ahead ??= await this.#look(signal);
    if (this.#ahead.length === 0) return;
    const gone = new AbortController();
    const onEnd = () => gone.abort(session.reason);
    if (session.aborted) onEnd();
    session.addEventListener("abort", onEnd, { once: true });
    const stopGuard = this.guard((loss) => gone.abort(loss), WAITER_GUARD_AFTER);
    const onAbort = () => gone.abort(signal.reason);
    if (signal.aborted) onAbort();
    signal.addEventListener("abort", onAbort, { once: true });
    try {
      for (let [next] = this.#ahead; next; [next] = this.#ahead) {
        this.#ahead = await this.#outlast(next, gone.signal);
      }
    } finally {
      stopGuard();
      session.removeEventListener("abort", onEnd);
      signal.removeEventListener("abort", onAbort);
    }
  }

  /**
   * Calls `onGone` as soon as a key of ours is gone, until the returned function is called.
   *
   * Most places are left sooner than it is worth watching them.
   */
  guard(onGone: (loss: SessionExpiredError) => void, span = GUARD_AFTER): () => void {
    const over = new AbortController();
    const start = () => void this.#watchOwn(onGone, over.signal).catch(() => {});
    const cancel = after(span, start, { idle: true });
    return () => {
      cancel();
      over.abort();
    };
  }

  /** Until the signal aborts, or a key of ours is gone. */
  async #watchOwn(onGone: (loss: SessionExpiredError) => void, signal: AbortSignal): Promise<void> {
    const bell = new Bell();
    const changed = (changes: readonly Change[]) => {
      if (changes.some(({ type }) => type === "remove")) bell.ring();
    };
    const watcher = { ready: () => bell.ring(), changed };
    const stops = this.keys.map((key) => this.#etcd.watch(key, watcher));
    try {
      do await bell.rung(signal);
      while (await this.#isStill(signal));
      onGone(this.#expired());
    } finally {
      for (const stop of stops) stop();
    }
  }

  async #isStill(signal: AbortSignal): Promise<boolean> {
    // Only a read makes a member that lags behind catch up before it compares.
    const [key = ""] = this.keys;
    const mine = { when: this.isOurs(), do: [get(key, { keysOnly: true })] };
    const { succeeded } = await this.#asked(() => this.#etcd.txn(mine, signal), signal);
    return succeeded;
  }

  /** The answer to a read, for which one waits as long as it takes: the session's life is what ends it. */
  async #asked<T>(read: () => Promise<T>, signal: AbortSignal): Promise<T> {
    for (let attempt = 0; ; attempt += 1) {
      try {
        return await read();
      } catch (error) {
        signal.throwIfAborted();
        if (!hasCode(error, "STORE_UNAVAILABLE", "UNKNOWN_OUTCOME")) throw error;
        await sleep(pause(attempt), signal);
      }
    }
  }

  /** One owner-checked removal. False: not all of it was ours any more. */
  async leave(limit?: AbortSignal): Promise<boolean> {
    const { keys } = this;
    // What is left of it, when not all of it is ours.
    const remains = keys.length > 1 ? keys.map((key) => this.#removal(key)) : [];
    const leaving = { when: this.isOurs(), do: keys.map(remove), otherwise: remains };
    const { succeeded } = await this.#etcd.txn(leaving, limit);
    return succeeded;
  }

  /** Puts our keys under another lease, in the same place. False: they are no longer ours. */
  async move(lease: Lease, limit?: AbortSignal): Promise<boolean> {
    const moves = this.keys.map((key) => put(key, this.#standing.value, lease));
    const { succeeded } = await this.#etcd.txn({ when: this.isOurs(), do: moves }, limit);
    if (succeeded) this.#lease = lease;
    return succeeded;
  }

  /**
   * The last of those before us in each queue; an empty list when we hold.
   *
   * What one member has is enough, once it has got as far as `since`.
   */
  async #look(signal: AbortSignal, since?: Revision): Promise<readonly KeyValue[]> {
    const read = (serializable: boolean) => {
      const look = { when: this.isOurs(), do: this.#before(serializable) };
      return this.#asked(() => this.#etcd.txn(look, signal), signal);
    };
    let seen = await read(since !== undefined);
    if (since !== undefined && (seen.revision < this.revision || seen.revision < since)) {
      seen = await read(false);
    }
    if (!seen.succeeded) throw this.#expired();
    return seen.answers.flatMap(({ kvs }) => kvs);
  }

  #before(serializable: boolean): readonly Get[] {
    const options = { limit: 1, createdBy: this.revision - 1n, serializable };
    return this.#standing.spots.map(({ queue }) => lastIn(queue, options));
  }

  /** Waits until `other` is no longer the one before us; resolves to who is. */
  async #outlast(other: KeyValue, signal: AbortSignal): Promise<readonly KeyValue[]> {
    const bell = new Bell();
    let told: Revision | undefined;
    const tell = (revision: Revision) => {
      told = revision;
      bell.ring();
    };
    const patience = this.#isFar ? FAR_LOOK_AFTER : 0;
    this.#isFar = false;
    let cancel = () => {};
    const ready = (revision: Revision) => {
      cancel();
      if (patience === 0) tell(revision);
      else cancel = after(patience, () => tell(revision));
    };
    const stop = this.#etcd.watch(other.key, {
      ready,
      changed: (changes) => {
        const removal = changes.find(({ type }) => type === "remove");
        if (removal) tell(removal.modRevision);
      },
    });
    try {
      for (;;) {
        await bell.rung(signal);
        const since = told;
        told = undefined;
        const ahead = await this.#look(signal, since);
        // A key of the same name may be another one.
        const same = ahead.some(({ createRevision }) => createRevision === other.createRevision);
        if (!same) return ahead;
      }
    } finally {
      cancel();
      stop();
    }
  }

  #removal(key: string): Op {
    return { op: "txn", txn: { when: [isCreated(key, this.revision)], do: [remove(key)] } };
  }

  #expired(): SessionExpiredError {
    return new SessionExpiredError(hex(this.#lease), "has lost its place in line");
  }
}

/** How long a place is held before its keys are watched. */
const GUARD_AFTER: Millis = 50;

/** How long one waits before one's keys are watched: whoever takes over sooner has just looked at them. */
const WAITER_GUARD_AFTER: Millis = 500;

/**
 * When to look for what happened before the watch stood, where it is unlikely: somebody in the middle of the
 * line has given up just then, or has had a very short turn. Most are told of their own turn before that.
 */
const FAR_LOOK_AFTER: Millis = 250;

function lastIn(queue: string, options: Partial<Get>): Get {
  return get({ prefix: queue }, { by: "create", order: "descending", keysOnly: true, ...options });
}

interface Entered {
  readonly revision: Revision;
  readonly read: OpAnswer | undefined;
  readonly ahead: readonly KeyValue[] | undefined;
  readonly isFar?: boolean;
}

/** A key that a late request may write, and what would stand in it. */
export interface Suspect {
  readonly key: string;
  readonly value: string;
}

/** Removes what was written under this lease, and nothing else of the same name. */
export function removalOf({ key, value }: Suspect, lease: Lease): Op {
  const when: Compare[] = [
    { keys: key, target: "lease", is: "=", than: lease },
    { keys: key, target: "value", is: "=", than: value },
  ];
  return { op: "txn", txn: { when, do: [remove(key)] } };
}

/** Getting into line, whatever happens to the answers. */
class Entry {
  readonly #etcd: Etcd;
  readonly #standing: Standing;
  readonly #entering: Entering;

  constructor(etcd: Etcd, standing: Standing, entering: Entering) {
    this.#etcd = etcd;
    this.#standing = standing;
    this.#entering = entering;
  }

  async line(): Promise<Entered> {
    const { spots, lease } = this.#standing;
    // Of the last two in each queue, one is ours.
    const lasts = spots.map(({ queue }) => lastIn(queue, { limit: 2 }));
    const nothing = spots.map(({ key }) => isAbsent(key));
    const entered = await this.#insist(nothing, lasts, (answer, again) => {
      const { answers, revision, succeeded } = answer;
      if (!succeeded) return this.#known(answer, again);
      const queues = answers.slice(-spots.length);
      const ahead = queues.flatMap(({ kvs }) =>
        kvs.filter(({ createRevision }) => createRevision < revision),
      );
      // Besides us and the one before us, there are more.
      const isFar = queues.every(({ count }) => count > 2);
      return { revision, read: this.#read(answer), ahead, isFar };
    });
    if (entered) return entered;
    throw new NotEnteredError(hex(lease), "has keys in these queues that it did not leave");
  }

  free(): Promise<Entered | undefined> {
    const nobody = this.#standing.spots.map(({ queue }) => isAbsent({ prefix: queue }));
    return this.#insist(nobody, [], (answer, again) => {
      const { revision, succeeded } = answer;
      if (!succeeded) return this.#known(answer, again);
      return { revision, read: this.#read(answer), ahead: [] };
    });
  }

  /** An entry whose answer was lost is asked for once more: then our keys are found. */
  async #insist(
    when: readonly Compare[],
    lasts: readonly Get[],
    entered: (answer: TxnAnswer, again: boolean) => Entered | undefined,
  ): Promise<Entered | undefined> {
    const { spots, lease, value, ttl } = this.#standing;
    const { signal, read, onDoubt = () => {} } = this.#entering;
    const puts = spots.map(({ key }) => put(key, value, lease));
    const also = read ? [read] : [];
    const mine = spots.map(({ key }) => get(key));
    const txn = { when, do: [...puts, ...also, ...lasts], otherwise: [...mine, ...also] };
    for (let lost = 0; ; lost += 1) {
      try {
        const answer = await answerTo((limit) => this.#etcd.txn(txn, limit), ttl, signal);
        const found = entered(answer, lost > 0);
        // The one whose answer was lost has not been carried out, and may still be.
        if (lost > 0 && (answer.succeeded || !found)) onDoubt();
        return found;
      } catch (error) {
        if (error instanceof NoLeaseError) throw new NotEnteredError(hex(lease));
        if (isCertain(error)) throw error;
        if (lost === 0 && !signal.aborted) continue;
        onDoubt();
        await this.#withdraw();
        signal.throwIfAborted();
        const problem = "the answers to two requests did not arrive";
        throw new StoreUnavailableError(this.#etcd.address, problem, error);
      }
    }
  }

  /**
   * Our keys, if all of them stand there already, for this lease and since one moment: written by a request of
   * ours whose answer was lost, or to be adopted. Anything else is somebody else's of the same session.
   */
  #known(answer: TxnAnswer, again: boolean): Entered | undefined {
    const { spots, lease, value } = this.#standing;
    const { adopt = false } = this.#entering;
    if (!again && !adopt) return undefined;
    const kvs = answer.answers.slice(0, spots.length).flatMap(({ kvs }) => kvs);
    const [first] = kvs;
    const ours = kvs.every(
      (kv) =>
        kv.lease === lease &&
        kv.createRevision === first?.createRevision &&
        (adopt || kv.value === value),
    );
    if (!first || !ours || kvs.length < spots.length) return undefined;
    return { revision: first.createRevision, read: this.#read(answer), ahead: undefined };
  }

  #read({ answers }: TxnAnswer): OpAnswer | undefined {
    return this.#entering.read && answers[this.#standing.spots.length];
  }

  /** Removes what is attached to our lease, whether or not it was written. */
  async #withdraw(): Promise<void> {
    const { spots, lease, value, ttl } = this.#standing;
    const removals = spots.map(({ key }) => removalOf({ key, value }, lease));
    await giveBack({
      drop: async (limit) => {
        await this.#etcd.txn({ when: [], do: removals }, limit);
        return true;
      },
      store: this.#etcd.address,
      names: spots.map(({ queue }) => queue),
      ttl,
      ours: 0,
    }).catch(() => {});
  }
}
