import {
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
import {
  hasCode,
  isCertain,
  SessionExpiredError,
  StoreUnavailableError,
} from "../../lock/errors.ts";
import { after, type Millis } from "../../lock/time.ts";
import { Bell } from "./bell.ts";
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

  /** One more thing to read in the same transaction. */
  readonly read?: Get;

  /** Called when the keys may still be written after the call has failed: only the lease's end is certain. */
  readonly onDoubt?: () => void;
}

/** The key names of `lease` in these queues, as Go names them. */
export function spotsOf(queues: readonly string[], lease: Lease): readonly Spot[] {
  return queues.map((queue) => ({ queue, key: queue + hex(lease) }));
}

/** Nothing was written: the session was gone before. */
export class NotEnteredError extends SessionExpiredError {}

/**
 * A place in one queue, or in several at once: all of its keys are created in one transaction, so they have
 * one revision. Whoever has no earlier key before it in any of its queues holds them all. Waits always go
 * from a later revision to an earlier one, so no two ever wait for each other.
 *
 * Only the creation proves anything: it goes through the log. The keys before ours can only become fewer, so
 * once a read has seen none of them, a stale read is as good as a fresh one.
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
    const stopGuard = this.guard(() => gone.abort(this.#expired()));
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
  guard(onGone: () => void): () => void {
    let stops: readonly (() => void)[] = [];
    const check = () => {
      // Only a read makes a member that lags behind catch up before it compares.
      const [key = ""] = this.keys;
      const mine = { when: this.isOurs(), do: [get(key, { keysOnly: true })] };
      this.#etcd.txn(mine).then(
        ({ succeeded }) => !succeeded && onGone(),
        () => {},
      );
    };
    const watch = (key: string) =>
      this.#etcd.watch(key, {
        ready: check,
        changed: (changes) => {
          const isGone = changes.some(
            ({ type, modRevision }) => type === "remove" && modRevision > this.revision,
          );
          if (isGone) onGone();
        },
      });
    const cancel = after(
      GUARD_AFTER,
      () => {
        stops = this.keys.map(watch);
      },
      { idle: true },
    );
    return () => {
      cancel();
      for (const stop of stops) stop();
    };
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
    let serializable = since !== undefined;
    for (let attempt = 0; ; attempt += 1) {
      try {
        const look = { when: this.isOurs(), do: this.#before(serializable) };
        const { succeeded, answers, revision } = await this.#etcd.txn(look, signal);
        const lags = serializable && (revision < this.revision || revision < (since ?? 0n));
        serializable = false;
        if (lags) continue;
        if (!succeeded) throw this.#expired();
        return answers.flatMap(({ kvs }) => kvs);
      } catch (error) {
        // Who stands in line outlasts a restart of the store, for as long as the session lives.
        signal.throwIfAborted();
        if (!hasCode(error, "STORE_UNAVAILABLE", "UNKNOWN_OUTCOME")) throw error;
        await sleep(pause(attempt), signal);
      }
    }
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
    const stop = this.#etcd.watch(other.key, {
      ready: tell,
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

/** How long a place lasts before its keys are watched. */
const GUARD_AFTER: Millis = 50;

function lastIn(queue: string, options: Partial<Get>): Get {
  return get({ prefix: queue }, { by: "create", order: "descending", keysOnly: true, ...options });
}

interface Entered {
  readonly revision: Revision;
  readonly read: OpAnswer | undefined;
  readonly ahead: readonly KeyValue[] | undefined;
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
    const entered = await this.#insist(nothing, lasts, (answer) => {
      const { answers, revision, succeeded } = answer;
      if (!succeeded) return this.#known(answer);
      const ahead = answers
        .slice(-spots.length)
        .flatMap(({ kvs }) => kvs.filter(({ createRevision }) => createRevision < revision));
      return { revision, read: this.#read(answer), ahead };
    });
    if (entered) return entered;
    throw new NotEnteredError(hex(lease), "has keys in these queues that it did not leave");
  }

  free(): Promise<Entered | undefined> {
    const nobody = this.#standing.spots.map(({ queue }) => isAbsent({ prefix: queue }));
    return this.#insist(nobody, [], (answer) => {
      const { revision, succeeded } = answer;
      if (!succeeded) return this.#known(answer);
      return { revision, read: this.#read(answer), ahead: [] };
    });
  }

  /** An entry whose answer was lost is asked for once more: then our keys are found. */
  async #insist(
    when: readonly Compare[],
    lasts: readonly Get[],
    entered: (answer: TxnAnswer) => Entered | undefined,
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
        // The one whose answer was lost has not been carried out, and may still be.
        if (lost > 0 && answer.succeeded) onDoubt();
        return entered(answer);
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

  /** Our keys, if all of them stand there already, for this lease and since one moment. */
  #known(answer: TxnAnswer): Entered | undefined {
    const { spots, lease } = this.#standing;
    const kvs = answer.answers.slice(0, spots.length).flatMap(({ kvs }) => kvs);
    const [first] = kvs;
    const ours = kvs.every(
      (kv) => kv.lease === lease && kv.createRevision === first?.createRevision,
    );
    if (!first || !ours || kvs.length < spots.length) return undefined;
    return { revision: first.createRevision, read: this.#read(answer), ahead: undefined };
  }

  #read({ answers }: TxnAnswer): OpAnswer | undefined {
    return this.#entering.read && answers[this.#standing.spots.length];
  }

  /** Removes what is attached to our lease, whether or not it was written. */
  async #withdraw(): Promise<void> {
    const { spots, lease, ttl } = this.#standing;
    const removals = spots.map(({ key }) => {
      const when = [{ keys: key, target: "lease", is: "=", than: lease }] as const;
      return { op: "txn", txn: { when, do: [remove(key)] } } as const;
    });
    await giveBack({
      drop: async () => {
        await answerTo((limit) => this.#etcd.txn({ when: [], do: removals }, limit), ttl);
        return true;
      },
      store: this.#etcd.address,
      names: spots.map(({ queue }) => queue),
      ttl,
      ours: 0,
    }).catch(() => {});
  }
}
