import { answerTo } from "../../lock/answers.ts";
import type { Backend, Hold, LockRequest } from "../../lock/backend.ts";
import { HIGHEST_GENERATION, noMoreGenerations } from "../../lock/checks.ts";
import { StoreUnavailableError } from "../../lock/errors.ts";
import { formatFence } from "../../lock/fence.ts";
import { holdOnLent, turnInTime } from "../../lock/lent.ts";
import type { LockInfo, StoreTraits } from "../../lock/lock.ts";
import { elapsedSince, type Millis } from "../../lock/time.ts";
import { decodeSegment, ownPath, parentOf, queueOf } from "../../zookeeper/names.ts";
import {
  BadVersionError,
  NodeExistsError,
  NoNodeError,
  type Path,
  type Session,
  type ZooKeeper,
} from "../../zookeeper/zookeeper.ts";
import { enter, enterFree, type Standing } from "./entry.ts";
import { leave, ZooKeeperHold } from "./hold.ts";
import type { Place } from "./place.ts";
import { inLine, makeFolder } from "./queue.ts";
import { decodeRecord, encodeRecord } from "./record.ts";
import { type LentSession, Sessions } from "./sessions.ts";

export const zookeeperTraits: StoreTraits = {
  name: "zookeeper",
  fair: true,
  watches: true,
  serverClock: true,
  shared: true,
  lockDelay: false,
  // The servers have a least timeout of their own, two ticks unless told otherwise.
  minTtl: 1_000,
};

export interface BackendOptions {
  /** "" or the path of the node below which the queues are. */
  readonly root: Path;

  /** What stands in the nodes of our locks, for humans. */
  readonly label: string;
  readonly closeZooKeeper: boolean;
}

/** The ttl of the session for what needs no lock. */
const LOOKING: Millis = 10_000;

/** How many nodes are read at a time. */
const PAGE = 200;

/** Locks as places in queues. */
export class ZooKeeperBackend implements Backend {
  readonly traits = zookeeperTraits;
  readonly #zookeeper: ZooKeeper;
  readonly #options: BackendOptions;
  readonly #sessions: Sessions;

  constructor(zookeeper: ZooKeeper, options: BackendOptions) {
    this.#zookeeper = zookeeper;
    this.#options = options;
    this.#sessions = new Sessions(zookeeper);
  }

  acquire(request: LockRequest): Promise<Hold | undefined> {
    return holdOnLent(this.#sessions, request, async (lent) => {
      const place = await this.#enter(request, lent);
      return place && this.#stand(request, lent, place);
    });
  }

  inspect(name: string): Promise<LockInfo> {
    return this.#look(async (session, signal) => {
      const [, generation] = await Promise.all([
        session.sync(signal),
        this.#generation(session, signal),
      ]);
      return this.#inspect(session, name, generation, signal);
    });
  }

  list(prefix: string): Promise<readonly LockInfo[]> {
    return this.#look(async (session, signal) => {
      const [, segments = [], generation] = await Promise.all([
        session.sync(signal),
        session.children(this.#options.root || "/", { signal }),
        this.#generation(session, signal),
      ]);
      const names = segments.flatMap((segment) => decodeSegment(segment) ?? []);
      const asked = names.filter((name) => name.startsWith(prefix)).sort();
      const infos: LockInfo[] = [];
      for (let at = 0; at < asked.length; at += PAGE) {
        const page = asked.slice(at, at + PAGE);
        const looks = page.map((name) => this.#inspect(session, name, generation, signal));
        infos.push(...(await Promise.all(looks)));
      }
      return infos.filter(({ holder }) => holder !== undefined);
    });
  }

  raiseGeneration(least: number): Promise<number> {
    return this.#look(async (session, signal) => {
      const path = ownPath(this.#options.root, "generation");
      for (;;) {
        const [, node] = await Promise.all([session.sync(signal), session.read(path, { signal })]);
        const generation = Math.max(least, Number(node?.data ?? 0) + 1);
        if (generation > HIGHEST_GENERATION) throw noMoreGenerations();
        const data = String(generation);
        try {
          if (node) await session.write(path, data, { version: node.stat.version, signal });
          else await session.create({ path, data }, signal);
          return generation;
        } catch (error) {
          if (error instanceof NoNodeError) await makeFolder(session, parentOf(path), signal);
          else if (!(error instanceof BadVersionError || error instanceof NodeExistsError))
            throw error;
        }
      }
    });
  }

  async close(): Promise<void> {
    await this.#sessions.close();
    if (this.#options.closeZooKeeper) await this.#zookeeper.close();
  }

  /** What needs no lock happens in a session of its own, within its ttl. */
  #look<T>(call: (session: Session, signal: AbortSignal) => Promise<T>): Promise<T> {
    return answerTo(async (signal) => {
      const lent = await this.#sessions.share(LOOKING, signal, 0);
      try {
        return await call(lent.session, signal);
      } catch (error) {
        const isOver = signal.aborted || lent.session.signal.aborted;
        throw isOver ? this.#unavailable("it does not answer", error) : error;
      } finally {
        lent.giveBack();
      }
    }, LOOKING);
  }

  /** A place in line or, where nothing is to be waited for, at its head. */
  #enter(request: LockRequest, lent: LentSession): Promise<Place | undefined> {
    const { names, ttl, wait, signal } = request;
    const { session } = lent;
    const standing: Standing = {
      session,
      queues: names.map((name) => queueOf(this.#options.root, name)),
      data: encodeRecord({ holder: this.#options.label, ttl: session.ttl, token: undefined }),
      also: this.#generationPath,
      ttl,
      signal,
      onDoubt: (debt) => lent.condemn(debt),
    };
    return wait > 0 ? enter(standing) : enterFree(standing);
  }

  /** Gets to the head of all queues, in time or not at all. */
  async #stand(request: LockRequest, lent: LentSession, place: Place): Promise<Hold | undefined> {
    const isInTime = await turnInTime(
      request,
      (patience) => place.turn(patience),
      () => leave(place, request, [lent], 0).catch(() => {}),
    );
    return isInTime ? this.#hold(request, lent, place) : undefined;
  }

  async #hold(request: LockRequest, lent: LentSession, place: Place): Promise<Hold> {
    const { signal, renew } = request;
    const isHeld = renew || (await startAnew(lent.session, signal));
    const generation = Number(place.read ?? 0);
    const { label } = this.#options;
    const hold = new ZooKeeperHold(this.#sessions, request, { place, lent, generation, label });
    if (isHeld && hold.life.remaining() > 0 && !signal.aborted) return hold;
    await hold.release("released").catch(() => {});
    signal.throwIfAborted();
    throw this.#unavailable("its answer took longer than the ttl");
  }

  #unavailable(problem: string, cause?: unknown): StoreUnavailableError {
    return new StoreUnavailableError(this.#zookeeper.address, problem, cause);
  }

  get #generationPath(): Path {
    return ownPath(this.#options.root, "generation");
  }

  async #generation(session: Session, signal: AbortSignal): Promise<number> {
    return Number((await session.read(this.#generationPath, { signal }))?.data ?? 0);
  }

  async #inspect(
    session: Session,
    name: string,
    generation: number,
    signal: AbortSignal,
  ): Promise<LockInfo> {
    const queue = queueOf(this.#options.root, name);
    for (;;) {
      const line = inLine((await session.children(queue, { signal })) ?? []);
      const [first] = line;
      if (first === undefined) return { name, ...FREE };
      const node = await session.read(`${queue}/${first}`, { signal });
      // It may have left meanwhile.
      if (!node) continue;
      const { holder, ttl: expiresIn, token = node.stat.czxid } = decodeRecord(node);
      const fence = formatFence(generation, token);
      return { name, holder, expiresIn, fence, waiters: line.length - 1 };
    }
  }
}

const FREE = { holder: undefined, expiresIn: undefined, fence: undefined, waiters: 0 } as const;

/** A lock that is not renewed starts with all of its ttl, however long it has waited. */
async function startAnew(session: Session, signal: AbortSignal): Promise<boolean> {
  session.rest();
  if (elapsedSince(session.granted.sentAt) < session.ttl / 10) return true;
  return (await session.reattach(signal).catch(() => undefined)) !== undefined;
}
