import { follow } from "../../lock/abort.ts";
import { Bell } from "../../lock/bell.ts";
import { checkText } from "../../lock/checks.ts";
import type { Unlocked } from "../../lock/lock.ts";
import { Tenure } from "../../lock/tenure.ts";
import { parentOf } from "../../zookeeper/names.ts";
import { NoNodeError, type Path, type Session, type Zxid } from "../../zookeeper/zookeeper.ts";
import { enter } from "./entry.ts";
import type { Place } from "./place.ts";
import { inLine, makeFolder, makeQueue, NEVER } from "./queue.ts";

/** Who leads, and what it says of itself. */
export interface Leader {
  readonly path: Path;
  readonly value: string;

  /** When it became a candidate: its fencing token. */
  readonly czxid: Zxid;

  /** Higher with each value it has proclaimed. */
  readonly mzxid: Zxid;
}

/** An election: candidates queue as locks do, each with a value in its node, and the first one leads. */
export class Election {
  readonly #session: Session;
  readonly #queue: Path;
  readonly #led: Tenure<Place>;

  /** Below this path, which is made where it is missing. Each election object is a candidate of its own. */
  constructor(session: Session, path: Path) {
    checkText("path", path, 1_000);
    if (!/^(\/[^/]+)+$/.test(path)) throw new RangeError('the path must be one such as "/leader"');
    this.#session = session;
    this.#queue = path;
    this.#led = new Tenure({ session, store: session.address, name: path });
  }

  /** Ours below the election's, while this election is led. */
  get path(): Path | undefined {
    return this.#led.place?.paths[0];
  }

  /** The change that has created it, the fencing token; undefined while this election is not led. */
  get czxid(): Zxid | undefined {
    return this.#led.place?.czxid;
  }

  /** Aborts when leadership is lost or given up; aborted while not leading. */
  get signal(): AbortSignal {
    return this.#led.signal;
  }

  /**
   * Becomes a candidate and resolves when elected. Who leads already proclaims the new value.
   *
   * Rejects with a SessionExpiredError as soon as the session, or the node, is gone: such a candidate never
   * wins; with the signal's reason; or as ZooKeeper does. Nothing is left in the queue then, unless ZooKeeper
   * cannot be reached: such a node stands there until the session is closed.
   */
  async campaign(value: string, { signal }: { readonly signal?: AbortSignal } = {}): Promise<void> {
    if (!this.signal.aborted) return this.proclaim(value);
    const session = this.#session;
    const scope = follow(signal, session.signal);
    try {
      await this.#led.settled();
      scope.signal.throwIfAborted();
      const place = await enter({
        session,
        queues: [this.#queue],
        data: value,
        ttl: session.ttl,
        signal: scope.signal,
        onDoubt: () => {},
      });
      try {
        await place.turn(scope.signal);
        scope.signal.throwIfAborted();
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
    const { path } = this;
    if (path === undefined || this.signal.aborted) throw this.#led.released();
    try {
      await this.#session.write(path, value);
    } catch (error) {
      throw error instanceof NoNodeError ? this.#led.released() : error;
    }
  }

  /** Gives leadership up, and has the next candidate elected. Does nothing when not leading. */
  resign(): Promise<Unlocked> {
    return this.#led.giveUp();
  }

  /** Who leads now; undefined: nobody does. */
  async leader(signal?: AbortSignal): Promise<Leader | undefined> {
    const [, leader] = await Promise.all([this.#session.sync(signal), this.#first(signal)]);
    return leader;
  }

  /**
   * The leader now and from then on, undefined while nobody leads, until the signal aborts or the session ends:
   * with its reason.
   *
   * The latest is always told, what is over before it can be told is not, and it never goes back in time.
   */
  async *observe({
    signal,
  }: {
    readonly signal?: AbortSignal;
  } = {}): AsyncGenerator<Leader | undefined> {
    const scope = follow(signal, this.#session.signal);
    const bell = new Bell(NEVER);
    const ring = () => bell.ring();
    let told: Leader | undefined | "nothing yet" = "nothing yet";
    try {
      await this.#session.sync(scope.signal);
      for (;;) {
        const leader = await this.#look(scope.signal, ring);
        if (told === "nothing yet" || leader?.mzxid !== told?.mzxid) {
          told = leader;
          yield leader;
        }
        await bell.rung(scope.signal);
      }
    } finally {
      this.#session.unwatch(this.#queue, ring);
      if (typeof told === "object") this.#session.unwatch(told.path, ring);
      scope[Symbol.dispose]();
    }
  }

  /** The leader, or that there is none; the watch is told when that may have changed. */
  async #look(signal: AbortSignal, watch: () => void): Promise<Leader | undefined> {
    for (;;) {
      const leader = await this.#first(signal, watch);
      if (leader) return leader;
      const children = await this.#session.children(this.#queue, { watch, signal });
      if (children && inLine(children).length === 0) return undefined;
      if (!children) await this.#makeQueue(signal);
    }
  }

  async #first(signal?: AbortSignal, watch?: () => void): Promise<Leader | undefined> {
    const options = { ...(signal && { signal }) };
    for (;;) {
      const children = await this.#session.children(this.#queue, options);
      const [first] = inLine(children ?? []);
      if (first === undefined) return undefined;
      const path = `${this.#queue}/${first}`;
      const node = await this.#session.read(path, { ...options, ...(watch && { watch }) });
      // It may have resigned meanwhile.
      if (!node) continue;
      const { czxid, mzxid } = node.stat;
      return { path, value: node.data, czxid, mzxid };
    }
  }

  async #makeQueue(signal: AbortSignal): Promise<void> {
    await makeFolder(this.#session, parentOf(this.#queue), signal);
    await makeQueue(this.#session, this.#queue, signal);
  }
}
