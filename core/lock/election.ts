import { follow, race } from "./abort.ts";
import { byteLength, checkName, checkSignal, wrongType } from "./checks.ts";
import type { Duration } from "./duration.ts";
import { quote, SessionExpiredError } from "./errors.ts";
import { type Fence, formatFence } from "./fence.ts";
import { Leadership, type LeadershipOptions } from "./leadership.ts";
import type { Unlocked } from "./lock.ts";
import { checkOptionNames, type OptionNames } from "./options.ts";
import type { QueueEntry } from "./session-queue.ts";

/** The leader of an election, and the value that it has proclaimed. */
export interface Leader {
  /** The key or path of its queue entry; in stores without a queue, the holder's id. */
  readonly key: string;
  readonly value: string;

  /** Its fencing token: the revision at which it became a candidate, or the token of its lock. */
  readonly token: bigint;

  /** Rises with each value that this leader proclaims. */
  readonly revision: bigint;

  /** Its fence, as `Fence.toString()` gives it; undefined for elections that no `Elections` has opened. */
  readonly fence?: string | undefined;

  /**
   * When it became the leader, by its clock. On stores with a queue of candidates, when it became a candidate, by the
   * server's clock, or undefined.
   */
  readonly since?: Date | undefined;
}

/** The elections of a store. The leader of an election holds the lock of the same name. */
export interface Elections {
  /**
   * Opens an election for one candidate, without a campaign; an observer needs no campaign. `ttl`, by default 10 s, is how
   * long a leader that is lost still leads.
   *
   *     await using shop = await openSqlite("shop.db");
   *     await using election = await shop.elections.open("leader", { ttl: "10s" });
   *     await election.campaign("host-7"); // resolves when elected
   *
   * On stores with sessions, it opens one: open another election after a SessionExpiredError.
   */
  open(name: string, options?: ElectionOptions): Promise<Election>;
}

export interface ElectionOptions {
  readonly ttl?: Duration | undefined;
  readonly signal?: AbortSignal | undefined;
}

/** The ttl of an election that names none. */
const ELECTION_TTL: Duration = "10s";

const ELECTION_OPTIONS = { ttl: true, signal: true } satisfies OptionNames<ElectionOptions>;

/** Returns the options of an election with its ttl. Throws a TypeError or RangeError for an invalid name or option. */
export function checkElection(name: string, options: ElectionOptions = {}) {
  checkName(name);
  checkOptionNames("elections.open", options, ELECTION_OPTIONS);
  checkSignal(options.signal);
  return { ttl: options.ttl ?? ELECTION_TTL, signal: options.signal ?? undefined };
}

/** Returns the signal in the options of a call. */
function signalIn(call: string, options: Pick<ElectionOptions, "signal"> = {}) {
  checkOptionNames(call, options, { signal: true });
  checkSignal(options.signal);
  return options.signal ?? undefined;
}

/** A candidate in an election: candidates queue as locks do, each with a value in its entry, and the first one leads. */
export interface Election extends AsyncDisposable {
  /** The key or path of the queue entry, or the holder's id; undefined while this candidate does not lead. */
  readonly key: string | undefined;

  /** The fencing token; undefined while this candidate does not lead. */
  readonly token: bigint | undefined;

  /**
   * The fence, for resources that check it. Undefined while this candidate does not lead, and for elections that no
   * `Elections` has opened.
   */
  readonly fence: Fence | undefined;

  /** Aborts when the leadership is lost or given up; aborted while this candidate does not lead. */
  readonly signal: AbortSignal;

  /**
   * Becomes a candidate and resolves when elected. A leader proclaims the new value and stays the leader. A value
   * has at most 1 MB; in stores without a queue, at most 80 bytes as JSON.
   *
   * An election object is one candidate. A call during another call of `campaign` waits for that one; if that one wins,
   * this call proclaims its own value.
   *
   * Rejects with a SessionExpiredError as soon as the session, or the entry, is gone: such a candidate never wins; with
   * the signal's reason; or as the store does. No entry is left in the queue then, unless the store cannot be reached:
   * such an entry stays until the session is closed.
   */
  campaign(value: string, options?: { readonly signal?: AbortSignal }): Promise<void>;

  /** Throws the signal's reason unless this candidate provably leads now. Synchronous, and right after a freeze. */
  assertLeads(): void;

  /** Changes the leader's value. Rejects with a LockReleasedError unless this candidate leads. */
  proclaim(value: string): Promise<void>;

  /** Gives the leadership up, so that the next candidate is elected. Resolves to `was-lost` when not leading. */
  resign(): Promise<Unlocked>;

  /** Resolves to the current leader, or to undefined when there is none. */
  leader(signal?: AbortSignal): Promise<Leader | undefined>;

  /**
   * Yields the current leader and each later one, undefined while there is none, until the signal aborts, or the election
   * is closed: then it throws the signal's reason, or a SessionExpiredError.
   *
   * A consumer always gets the latest state, may miss states that ended before it asked, and never gets an older one.
   */
  observe(options?: { readonly signal?: AbortSignal }): AsyncGenerator<Leader | undefined>;

  /**
   * Resigns, as far as the store can be reached, and ends its campaigns and a session that `Elections` has opened. Never
   * rejects.
   */
  close(): Promise<void>;
}

/** The queue of an election, in a store. */
export interface ElectionQueue<E extends CandidateEntry> extends LeadershipOptions {
  /** Enters the queue. When it rejects, no entry is left, as far as the store can be reached. */
  enter(value: string, signal: AbortSignal): Promise<E>;

  /** Writes a new value into the entry. Resolves to false when the entry is gone. */
  write(entry: E, value: string): Promise<boolean>;

  /** Resolves to the first entry of the queue. */
  first(signal?: AbortSignal): Promise<Leader | undefined>;

  /** Yields the first entry of the queue, and yields it again whenever it may have changed. */
  changes(signal: AbortSignal): AsyncGenerator<Leader | undefined>;

  /** Throws unless the value has a place in an entry. */
  checkValue?(value: string): void;

  /** Returns the fence of an entry; undefined where the generation is not known. */
  fenceOf(entry: E): Fence | undefined;

  /** Ends the session, if it belongs to the queue. */
  close?(): void;
}

export interface CandidateEntry extends QueueEntry {
  readonly key: string;
  readonly token: bigint;

  /** Whether the entry was in the queue before, and may have another value. */
  readonly isAdopted: boolean;
}

/** Makes an election of a queue. `entry` is that of a candidate which leads already. */
export function electionOn<E extends CandidateEntry>(queue: ElectionQueue<E>, entry?: E): Election {
  return new Candidate(queue, entry);
}

class Candidate<E extends CandidateEntry> implements Election {
  readonly #queue: ElectionQueue<E>;
  readonly #leadership: Leadership<E>;
  readonly #closing = new AbortController();

  /** Resolves to whether the campaign under way has won. */
  #campaigning: Promise<boolean> | undefined;
  #fence: Fence | undefined;

  /** Resolves when the values so far are written, or have failed. */
  #writing: Promise<unknown> = Promise.resolve();

  constructor(queue: ElectionQueue<E>, entry: E | undefined) {
    this.#queue = queue;
    this.#leadership = new Leadership(queue);
    if (entry) this.#leadership.begin(entry);
  }

  get key(): string | undefined {
    return this.#leading?.key;
  }

  get token(): bigint | undefined {
    return this.#leading?.token;
  }

  get fence(): Fence | undefined {
    return this.#leading && this.#fence;
  }

  /** The entry of a candidate that leads. */
  get #leading(): E | undefined {
    return this.signal.aborted ? undefined : this.#leadership.entry;
  }

  get signal(): AbortSignal {
    return this.#leadership.signal;
  }

  assertLeads(): void {
    const remaining = this.#queue.session.remaining();
    // After a freeze, the look at the clock may have ended the leadership.
    this.signal.throwIfAborted();
    if (remaining <= 0) throw new SessionExpiredError(this.key ?? "");
  }

  async campaign(value: string, options?: { readonly signal?: AbortSignal }): Promise<void> {
    const signal = signalIn("campaign", options);
    checkSize(value);
    this.#queue.checkValue?.(value);
    using scope = follow(signal, this.#queue.session.signal, this.#closing.signal);
    while (this.#campaigning) {
      if (await race(this.#campaigning, scope.signal)) return this.proclaim(value);
    }
    if (!this.signal.aborted) return this.proclaim(value);
    const campaign = this.#campaign(value, scope.signal);
    this.#campaigning = campaign
      .then(
        () => true,
        () => false,
      )
      .finally(() => {
        this.#campaigning = undefined;
      });
    await campaign;
  }

  async #campaign(value: string, signal: AbortSignal): Promise<void> {
    await this.#leadership.settled();
    signal.throwIfAborted();
    const entry = await this.#elected(value, signal);
    if (signal.aborted) {
      await this.#leadership.decline(entry);
      throw signal.reason;
    }
    this.#fence = this.#queue.fenceOf(entry);
    this.#leadership.begin(entry);
  }

  async proclaim(value: string): Promise<void> {
    checkSize(value);
    this.#queue.checkValue?.(value);
    const { entry } = this.#leadership;
    if (!entry || this.signal.aborted) throw this.#leadership.released();
    await this.#write(entry, value);
  }

  resign(): Promise<Unlocked> {
    return this.#leadership.giveUp();
  }

  async leader(signal?: AbortSignal): Promise<Leader | undefined> {
    checkSignal(signal);
    return this.#queue.first(signal);
  }

  async *observe(options?: { readonly signal?: AbortSignal }): AsyncGenerator<Leader | undefined> {
    const signal = signalIn("observe", options);
    using scope = follow(signal, this.#closing.signal);
    let last: Leader | undefined | "none yet" = "none yet";
    let latest: Leader | undefined;
    for await (const leader of this.#queue.changes(scope.signal)) {
      if (last !== "none yet" && isSame(leader, last)) continue;
      if (leader && latest && isBefore(leader, latest)) continue;
      latest = leader ?? latest;
      last = leader;
      yield leader;
    }
  }

  async close(): Promise<void> {
    const election = `of election ${quote(this.#queue.name)}`;
    this.#closing.abort(new SessionExpiredError(election, "was closed"));
    await this.resign().catch(() => {});
    this.#queue.close?.();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  /** Resolves to an entry that is the first one. */
  async #elected(value: string, signal: AbortSignal): Promise<E> {
    const entry = await this.#queue.enter(value, signal);
    try {
      if (entry.isAdopted) await this.#write(entry, value);
      await entry.waitForTurn(signal);
      signal.throwIfAborted();
      return entry;
    } catch (error) {
      await this.#leadership.decline(entry);
      throw error;
    }
  }

  /** Writes a value when the earlier ones are written: the last one stands. */
  async #write(entry: E, value: string): Promise<void> {
    const writing = this.#writing.then(() => this.#queue.write(entry, value));
    this.#writing = writing.catch(() => {});
    if (!(await writing)) throw this.#leadership.released();
  }
}

/** The longest value, in bytes of UTF-8. The smallest limit of any store, that of a request, is 1 MiB. */
const LONGEST_VALUE = 1_000_000;

function checkSize(value: unknown): void {
  if (typeof value !== "string") throw wrongType("the value", "a string", value);
  const bytes = byteLength(value);
  if (bytes > LONGEST_VALUE) {
    throw new RangeError(`the value has ${bytes} bytes, the limit is ${LONGEST_VALUE}`);
  }
}

function isSame(a: Leader | undefined, b: Leader | undefined): boolean {
  return placeOf(a) === placeOf(b) && a?.revision === b?.revision;
}

function isBefore(a: Leader, b: Leader): boolean {
  const [first, second] = [placeOf(a), placeOf(b)];
  return first === second ? a.revision < b.revision : first < second;
}

/** The place of a leader in the order of leaders, as text that sorts. Without a fence, its generation is 0. */
function placeOf(leader: Leader | undefined): string {
  return leader ? (leader.fence ?? formatFence(0, leader.token)) : "";
}
