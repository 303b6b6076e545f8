import { follow } from "../../lock/abort.ts";
import { Bell } from "../../lock/bell.ts";
import { hasCode, SessionExpiredError } from "../../lock/errors.ts";
import { after, type Millis } from "../../lock/time.ts";
import { NoNodeError, type Path, type Session, type Zxid } from "../../zookeeper/zookeeper.ts";
import { inLine, NEVER, removeIfThere } from "./queue.ts";

/** What is known of a place when it is entered. */
export interface Entered {
  readonly spots: readonly Spot[];
  readonly czxid: Zxid;

  /** What was in the node that was read as well. */
  readonly read: string | undefined;
}

/** Our node in one queue. */
export interface Spot {
  readonly queue: Path;
  readonly path: Path;

  /** The last of those who stood before us; undefined: nobody does, and nobody ever will. */
  readonly next: Path | undefined;
}

/** How long a place is held before its nodes are watched: most are left sooner than it is worth it. */
const GUARD_AFTER: Millis = 50;

/**
 * A place in one queue, or in several at once: all of its nodes are created in one change, so that each queue has
 * any two places in the same order. Waits always go from a later one to an earlier one, so no two ever wait for
 * each other.
 *
 * Those before us can only become fewer, so it is the last of them whom we wait for, and nobody else is woken when
 * it leaves. A session reads what it has written, so a look after the creation has missed nobody.
 */
export class Place {
  readonly paths: readonly Path[];

  /** The change that has made our nodes: the fencing token. */
  readonly czxid: Zxid;

  /** What was read on entering. */
  readonly read: string | undefined;
  #session: Session;
  readonly #spots: readonly Spot[];

  constructor(session: Session, { spots, czxid, read }: Entered) {
    this.#session = session;
    this.paths = spots.map(({ path }) => path);
    this.czxid = czxid;
    this.read = read;
    this.#spots = spots;
  }

  /** Whether nobody was before us when we entered. */
  get isFirst(): boolean {
    return this.#spots.every(({ next }) => next === undefined);
  }

  /**
   * Resolves when nobody is before us any more. Rejects with a SessionExpiredError as soon as a node of ours is
   * gone or the session ends, and with the signal's reason.
   */
  async turn(caller: AbortSignal): Promise<void> {
    if (this.isFirst) return;
    const gone = new AbortController();
    const scope = follow(caller, this.#session.signal, gone.signal);
    const stop = this.#guardNow((loss) => gone.abort(loss));
    try {
      for (const spot of this.#spots) await this.#outlast(spot, scope.signal);
    } finally {
      stop();
      scope[Symbol.dispose]();
    }
  }

  /** Calls `onGone` as soon as a node of ours is gone, until the returned function is called. */
  guard(onGone: (loss: SessionExpiredError) => void): () => void {
    let stop = () => {};
    const start = () => {
      stop = this.#guardNow(onGone);
    };
    const cancel = after(GUARD_AFTER, start, { idle: true });
    return () => {
      cancel();
      stop();
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

  /** Until nobody is before us in this queue. The last look sees our own node too. */
  async #outlast({ queue, path, next }: Spot, signal: AbortSignal): Promise<void> {
    const session = this.#session;
    const bell = new Bell(NEVER);
    const watch = () => bell.ring();
    let last = next;
    try {
      while (last !== undefined) {
        if (await session.read(last, { watch, signal })) await bell.rung(signal);
        const names = await session.children(queue, { signal });
        const line = lineBefore({ queue, path }, names ?? []);
        if (!line) throw this.#expired();
        session.unwatch(last, watch);
        last = line.at(-1);
      }
    } finally {
      if (last !== undefined) session.unwatch(last, watch);
    }
  }

  #guardNow(onGone: (loss: SessionExpiredError) => void): () => void {
    const over = new AbortController();
    this.#watchOwn(onGone, over.signal).catch(() => {});
    return () => over.abort();
  }

  /** Names are not used again, so a node of ours that is there is the one that we have made. */
  async #areThere(watch: () => void, signal: AbortSignal): Promise<boolean> {
    const reads = this.paths.map((path) => this.#session.read(path, { watch, signal }));
    return (await Promise.all(reads)).every((node) => node !== undefined);
  }

  async #watchOwn(onGone: (loss: SessionExpiredError) => void, signal: AbortSignal): Promise<void> {
    const bell = new Bell(NEVER);
    const ring = () => bell.ring();
    try {
      while (await this.#areThere(ring, signal)) await bell.rung(signal);
      onGone(this.#expired());
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

/** Who stands before our node, first come first; undefined: it is not there. */
export function lineBefore(
  { queue, path }: Pick<Spot, "queue" | "path">,
  children: readonly string[],
): readonly Path[] | undefined {
  const line = inLine(children).map((name) => `${queue}/${name}`);
  const ours = line.indexOf(path);
  return ours < 0 ? undefined : line.slice(0, ours);
}
