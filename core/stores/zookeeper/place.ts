import { follow } from "../../lock/abort.ts";
import { Bell } from "../../lock/bell.ts";
import { hasCode, SessionExpiredError } from "../../lock/errors.ts";
import { after, type Millis } from "../../lock/time.ts";
import { NoNodeError, type Path, type Session, type Zxid } from "../../zookeeper/zookeeper.ts";
import { removeIfThere } from "./queue.ts";

/** What is known of a place when it is entered. */
export interface Entered {
  /** Ours, one in each queue. */
  readonly paths: readonly Path[];
  readonly czxid: Zxid;

  /** Who stands before us, queue by queue, first come first. */
  readonly ahead: readonly (readonly Path[])[];

  /** What was in the node that was read as well. */
  readonly read: string | undefined;
}

/** How long a place is held before its nodes are watched: most are left sooner than it is worth it. */
const GUARD_AFTER: Millis = 50;

/**
 * A place in one queue, or in several at once: all of its nodes are created in one change, so that each queue has
 * any two places in the same order. Waits always go from a later one to an earlier one, so no two ever wait for
 * each other.
 *
 * Those before us can only become fewer, so whom we have seen once need not be looked for again: we wait for the
 * one right before us, then for the one before that, until nobody is left. A session reads what it has written, so
 * a look after the creation has missed nobody.
 */
export class Place {
  readonly paths: readonly Path[];

  /** The change that has made our nodes: the fencing token. */
  readonly czxid: Zxid;

  /** What was read on entering. */
  readonly read: string | undefined;
  #session: Session;
  readonly #ahead: readonly Path[][];

  constructor(session: Session, { paths, czxid, ahead, read }: Entered) {
    this.#session = session;
    this.paths = paths;
    this.czxid = czxid;
    this.read = read;
    this.#ahead = ahead.map((line) => [...line]);
  }

  /** Whether nobody is before us, as far as we have looked. */
  get isFirst(): boolean {
    return this.#line() === undefined;
  }

  /**
   * Resolves when nobody is before us any more. Rejects with a SessionExpiredError as soon as a node of ours is
   * gone or the session ends, and with the signal's reason.
   */
  async turn(caller: AbortSignal): Promise<void> {
    if (this.isFirst) return;
    const scope = follow(caller, this.#session.signal);
    const { signal } = scope;
    const bell = new Bell();
    const other = () => bell.ring();
    let isSure = false;
    const mine = () => {
      isSure = false;
      bell.ring();
    };
    let line = this.#line();
    try {
      while (line !== undefined || !isSure) {
        const next = line?.at(-1);
        const looking = isSure || this.#areThere(mine, signal);
        isSure = true;
        const reading = next && this.#session.read(next, { watch: other, signal });
        const [isOurs, found] = await Promise.all([looking, reading]);
        if (!isOurs) throw this.#expired();
        if (found) await bell.rung(signal);
        else line?.pop();
        line = this.#line();
      }
    } finally {
      scope[Symbol.dispose]();
      this.#unwatch(mine);
      for (const path of line?.slice(-1) ?? []) this.#session.unwatch(path, other);
    }
  }

  /** Calls `onGone` as soon as a node of ours is gone, until the returned function is called. */
  guard(onGone: () => void): () => void {
    const over = new AbortController();
    const start = () => void this.#watchOwn(onGone, over.signal).catch(() => {});
    const cancel = after(GUARD_AFTER, start, { idle: true });
    return () => {
      cancel();
      over.abort();
    };
  }

  /** Removes our nodes. False: they were gone already, or some of them. */
  async leave(limit?: AbortSignal): Promise<boolean> {
    const [path = ""] = this.paths;
    try {
      if (this.paths.length === 1) await this.#session.remove(path, limit);
      else await this.#session.multi(this.#removals(), limit);
      return true;
    } catch (error) {
      // They have ended with their session.
      if (hasCode(error, "SESSION_EXPIRED")) return false;
      if (!(error instanceof NoNodeError)) throw error;
    }
    if (this.paths.length === 1) return false;
    for (const each of this.paths) await removeIfThere(this.#session, each, limit);
    return false;
  }

  /**
   * Hands our nodes to another session of ours, in the same place: whoever waits for them looks, and finds them
   * there. False: they were gone.
   */
  async move(to: Session, data: string, limit: AbortSignal): Promise<boolean> {
    const creations = this.paths.map((path) => {
      return { op: "create", node: { path, data, mode: "ephemeral" } } as const;
    });
    try {
      await to.multi([...this.#removals(), ...creations], limit);
    } catch (error) {
      if (error instanceof NoNodeError) return false;
      if (!hasCode(error, "UNKNOWN_OUTCOME") || !(await this.#hasMoved(to, limit))) throw error;
    }
    this.#session = to;
    return true;
  }

  async #hasMoved(to: Session, signal: AbortSignal): Promise<boolean> {
    const [path = ""] = this.paths;
    const [, node] = await Promise.all([to.sync(signal), to.read(path, { signal })]);
    return node?.stat.owner === to.owner;
  }

  #expired(): SessionExpiredError {
    return new SessionExpiredError(this.#session.id, "has lost its place in line");
  }

  /** The first line that somebody stands in before us. */
  #line(): Path[] | undefined {
    return this.#ahead.find(({ length }) => length > 0);
  }

  /** Names are not used again, so a node of ours that is there is the one that we have made. */
  async #areThere(watch: () => void, signal: AbortSignal): Promise<boolean> {
    const reads = this.paths.map((path) => this.#session.read(path, { watch, signal }));
    return (await Promise.all(reads)).every((node) => node !== undefined);
  }

  async #watchOwn(onGone: () => void, signal: AbortSignal): Promise<void> {
    const bell = new Bell();
    const ring = () => bell.ring();
    try {
      while (await this.#areThere(ring, signal)) await bell.rung(signal);
      onGone();
    } finally {
      this.#unwatch(ring);
    }
  }

  #unwatch(watch: () => void): void {
    for (const path of this.paths) this.#session.unwatch(path, watch);
  }

  #removals() {
    return this.paths.map((path) => ({ op: "remove", path }) as const);
  }
}
