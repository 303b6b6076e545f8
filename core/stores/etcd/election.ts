import { type Etcd, get, isCreated, type KeyValue, put, type Revision } from "../../etcd/etcd.ts";
import { follow, sleep } from "../../lock/abort.ts";
import { pause } from "../../lock/answers.ts";
import { Bell } from "../../lock/bell.ts";
import { checkText } from "../../lock/checks.ts";
import { hasCode } from "../../lock/errors.ts";
import type { Unlocked } from "../../lock/lock.ts";
import { Tenure } from "../../lock/tenure.ts";
import { hex } from "./lease.ts";
import { Place, spotsOf } from "./place.ts";
import type { Session } from "./session.ts";

/** Who leads, and what it says of itself. */
export interface Leader {
  readonly key: string;
  readonly value: string;

  /** When it became a candidate: its fencing token. */
  readonly revision: Revision;

  /** Higher with each value it has proclaimed. */
  readonly modRevision: Revision;
}

/**
 * An election on the keys of Go's clientv3/concurrency and of `etcdctl elect`: candidates queue as mutexes
 * do, each with a value in its key, and the oldest one leads.
 */
export class Election {
  readonly #etcd: Etcd;
  readonly #session: Session;
  readonly #queue: string;
  readonly #led: Tenure<Place>;

  constructor(etcd: Etcd, session: Session, prefix: string) {
    checkText("prefix", prefix, 1_000);
    this.#etcd = etcd;
    this.#session = session;
    this.#queue = `${prefix}/`;
    this.#led = new Tenure({ session, store: etcd.address, name: prefix });
  }

  /** The election that another process, or an earlier life of this one, leads with this session's lease. */
  static resume(etcd: Etcd, session: Session, prefix: string, revision: Revision): Election {
    const election = new Election(etcd, session, prefix);
    election.#led.begin(Place.at(etcd, election.#standing(""), revision));
    return election;
  }

  /** Ours under the prefix, whether or not it exists. */
  get key(): string {
    return this.#queue + hex(this.#session.id);
  }

  /** The key's create revision, the fencing token; undefined while this election is not led. */
  get revision(): Revision | undefined {
    return this.#led.place?.revision;
  }

  /** Aborts when leadership is lost or given up; aborted while not leading. */
  get signal(): AbortSignal {
    return this.#led.signal;
  }

  /**
   * Becomes a candidate and resolves when elected. A session that is in line already goes on there, with the
   * new value.
   *
   * Rejects with a SessionExpiredError as soon as the session, or the key, is gone: such a candidate never
   * wins; with the signal's reason; or as etcd does. Nothing is left in the queue then.
   */
  async campaign(value: string, { signal }: { readonly signal?: AbortSignal } = {}): Promise<void> {
    if (!this.signal.aborted) return this.proclaim(value);
    const scope = follow(signal, this.#session.signal);
    try {
      await this.#led.settled();
      scope.signal.throwIfAborted();
      const standing = this.#standing(value);
      const place = await Place.enter(this.#etcd, standing, {
        signal: scope.signal,
        adopt: true,
      });
      try {
        if (!place.isNew) await this.#say(place, value);
        await place.turn(this.#session.signal, scope.signal);
      } catch (error) {
        await this.#led.decline(place);
        throw error;
      }
      this.#led.begin(place);
    } finally {
      scope[Symbol.dispose]();
    }
  }

  /** Changes the leader's value. Rejects with a LockReleasedError when not leading, or no longer. */
  async proclaim(value: string): Promise<void> {
    const { place } = this.#led;
    if (!place || this.signal.aborted) throw this.#led.released();
    await this.#say(place, value);
  }

  /** Gives leadership up, and has the next candidate elected. Does nothing when not leading. */
  resign(): Promise<Unlocked> {
    return this.#led.giveUp();
  }

  /** Who leads now; undefined: nobody does. */
  async leader(signal?: AbortSignal): Promise<Leader | undefined> {
    const { kvs } = await this.#etcd.range(
      get({ prefix: this.#queue }, { by: "create", limit: 1 }),
      signal,
    );
    return kvs[0] && toLeader(kvs[0]);
  }

  /**
   * The leader now and from then on, undefined while nobody leads, until the signal aborts: with its reason.
   *
   * The latest is always told, what is over before it can be told is not, and it never goes back in time.
   */
  async *observe({
    signal = new AbortController().signal,
  }: {
    readonly signal?: AbortSignal;
  } = {}): AsyncGenerator<Leader | undefined> {
    const bell = new Bell();
    const ring = () => bell.ring();
    const stop = this.#etcd.watch({ prefix: this.#queue }, { ready: ring, changed: ring });
    let told: Leader | undefined | "nothing yet" = "nothing yet";
    let latest: Leader | undefined;
    try {
      for (;;) {
        await bell.rung(signal);
        const leader = await this.#leaderWhenReached(signal);
        if (told !== "nothing yet" && leader?.modRevision === told?.modRevision) continue;
        if (leader && latest && isBefore(leader, latest)) continue;
        latest = leader ?? latest;
        told = leader;
        yield leader;
      }
    } finally {
      stop();
    }
  }

  /** An observer outlasts a restart of etcd. */
  async #leaderWhenReached(signal: AbortSignal): Promise<Leader | undefined> {
    for (let attempt = 0; ; attempt += 1) {
      try {
        return await this.leader(signal);
      } catch (error) {
        if (!hasCode(error, "STORE_UNAVAILABLE")) throw error;
        await sleep(pause(attempt), signal);
      }
    }
  }

  #standing(value: string) {
    const { id, ttl } = this.#session;
    return { spots: spotsOf([this.#queue], id), lease: id, value, ttl };
  }

  async #say(place: Place, value: string): Promise<void> {
    const txn = {
      when: [isCreated(this.key, place.revision)],
      do: [put(this.key, value, this.#session.id)],
    };
    const { succeeded } = await this.#etcd.txn(txn);
    if (!succeeded) throw this.#led.released();
  }
}

function toLeader({ key, value, createRevision, modRevision }: KeyValue): Leader {
  return { key, value, revision: createRevision, modRevision };
}

function isBefore(a: Leader, b: Leader): boolean {
  if (a.revision !== b.revision) return a.revision < b.revision;
  return a.modRevision < b.modRevision;
}
