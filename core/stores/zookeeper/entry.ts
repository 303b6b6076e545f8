import { answerTo, giveBack } from "../../lock/answers.ts";
import {
  hasCode,
  isCertain,
  SessionExpiredError,
  StoreUnavailableError,
} from "../../lock/errors.ts";
import { NotEnteredError } from "../../lock/lent.ts";
import type { Millis } from "../../lock/time.ts";
import { parentOf } from "../../zookeeper/names.ts";
import { NoNodeError, type Path, type Session, type Zxid } from "../../zookeeper/zookeeper.ts";
import { lineBefore, Place, type Spot } from "./place.ts";
import { inLine, makeFolder, makeQueue, newMark, removeIfThere } from "./queue.ts";

/** Where to stand, as whom, and what is to stand in the nodes. */
export interface Standing {
  readonly session: Session;
  readonly queues: readonly Path[];
  readonly data: string;

  /** One more node to read on entering. */
  readonly also?: Path;
  readonly ttl: Millis;
  readonly signal: AbortSignal;

  /** Called with what has still to be done when nodes of ours may be left behind. */
  onDoubt(debt: Debt): void;
}

/** One attempt to remove what was left behind. It rejects when that is not known to be gone. */
export type Debt = () => Promise<unknown>;

/** How often a queue may go while one enters it: ZooKeeper deletes the empty ones every minute. */
const MOST_TRIES = 10;

/** Stands in line. Rejects with nothing left behind; with a NotEnteredError when the session is gone. */
export function enter(standing: Standing): Promise<Place> {
  return new Entry(standing).line();
}

/** Enters only where nobody stands: nothing is written where somebody does. Resolves to undefined then. */
export async function enterFree(standing: Standing): Promise<Place | undefined> {
  const { session, queues, ttl, signal } = standing;
  const looks = await answerTo(
    (limit) => Promise.all([session.sync(limit), ...lookAt(session, queues, limit)]),
    ttl,
    signal,
  );
  if (looks.some((look) => look && inLine(look).length > 0)) return undefined;
  return new Entry(standing).head();
}

function lookAt(session: Session, queues: readonly Path[], signal: AbortSignal) {
  return queues.map((queue) => session.children(queue, { signal }));
}

/** Getting into line, whatever happens to the answers: our nodes are known by their mark. */
class Entry {
  readonly #standing: Standing;
  readonly #mark = newMark();

  /** Whether nodes of ours may be there. */
  #mayStand = false;

  /** Whether the queues are made together with our nodes. */
  #makesQueues = false;

  constructor(standing: Standing) {
    this.#standing = standing;
  }

  async line(): Promise<Place> {
    const { session, signal } = this.#standing;
    for (let tries = 1, lost = 0; ; tries += 1) {
      try {
        return await this.#enter();
      } catch (error) {
        if (session.signal.aborted) throw new NotEnteredError(session.id);
        const isLost = this.#mayStand;
        if (isLost) await this.#withdraw();
        signal.throwIfAborted();
        if (error instanceof NoNodeError && tries < MOST_TRIES) await this.#prepare();
        else if (isLost && lost === 0 && !isCertain(error)) lost += 1;
        else throw isKnown(error) ? error : this.#noHelp(error);
      }
    }
  }

  /** Undefined when somebody was faster. */
  async head(): Promise<Place | undefined> {
    const place = await this.line();
    if (place.isFirst) return place;
    await this.#withdraw();
    return undefined;
  }

  async #enter(): Promise<Place> {
    const { session, queues, also, ttl, signal } = this.#standing;
    // Sent at once: a session's requests are carried out in order.
    const enter = (limit: AbortSignal) => {
      const making = this.#makesQueues ? this.#makeQueues(limit) : undefined;
      const creating = this.#create(limit).catch(async (error) => {
        // Without queues there are no nodes of ours either, and this tells why.
        throw (await making) ?? error;
      });
      return Promise.all([
        creating,
        also && session.read(also, { signal: limit }),
        ...lookAt(session, queues, limit),
      ]);
    };
    const [{ paths, czxid }, read, ...looks] = await answerTo(enter, ttl, signal);
    const spots = queues.map((queue, i): Spot => {
      const path = paths[i] ?? "";
      const line = lineBefore({ queue, path }, looks[i] ?? []);
      if (!line) throw lostPlace(session);
      return { queue, path, next: line.at(-1) };
    });
    return new Place(session, { spots, czxid, read: read ? read.data : undefined });
  }

  /** Resolves to what has certainly gone wrong. */
  async #makeQueues(limit: AbortSignal): Promise<unknown> {
    const { session, queues } = this.#standing;
    const made = await Promise.allSettled(queues.map((each) => makeQueue(session, each, limit)));
    const reasons = made.map((each) => (each.status === "rejected" ? each.reason : undefined));
    return reasons.find(isCertain);
  }

  async #create(
    limit: AbortSignal,
  ): Promise<{ readonly paths: readonly Path[]; readonly czxid: Zxid }> {
    const { session, queues, data } = this.#standing;
    const nodes = queues.map((queue) => {
      return { path: `${queue}/${this.#mark}`, data, mode: "sequential" } as const;
    });
    const [node] = nodes;
    if (node && nodes.length === 1) {
      const { path, czxid } = await this.#made(session.create(node, limit));
      return { paths: [path], czxid };
    }
    const creations = nodes.map((each) => ({ op: "create", node: each }) as const);
    const paths = (await this.#made(session.multi(creations, limit))).map(String);
    // One change has made them all, but a transaction's answer does not tell which.
    const first = await session.read(paths[0] ?? "", { signal: limit });
    if (!first) throw lostPlace(session);
    return { paths, czxid: first.stat.czxid };
  }

  async #made<T>(making: Promise<T>): Promise<T> {
    this.#mayStand = true;
    try {
      return await making;
    } catch (error) {
      this.#mayStand = hasCode(error, "UNKNOWN_OUTCOME");
      throw error;
    }
  }

  /** Where a queue is missing, it is made the next time; then what is above it. */
  async #prepare(): Promise<void> {
    const { session, queues, ttl, signal } = this.#standing;
    if (!this.#makesQueues) {
      this.#makesQueues = true;
      return;
    }
    const make = async (limit: AbortSignal) => {
      for (const queue of queues) await makeFolder(session, parentOf(queue), limit);
    };
    try {
      await answerTo(make, ttl, signal);
    } catch (error) {
      signal.throwIfAborted();
      // What was made without an answer is found when it is entered.
      if (!hasCode(error, "UNKNOWN_OUTCOME")) throw isKnown(error) ? error : this.#noHelp(error);
    }
  }

  async #withdraw(): Promise<void> {
    const { session, queues, ttl, onDoubt } = this.#standing;
    const drop = async (limit: AbortSignal) => {
      await this.#removeAll(limit);
      return true;
    };
    try {
      await giveBack({ drop, store: session.address, names: queues, ttl, ours: 0 });
      this.#mayStand = false;
    } catch (error) {
      onDoubt(() => answerTo((limit) => this.#removeAll(limit), ttl));
      throw error;
    }
  }

  /** Whatever of ours there is. */
  async #removeAll(limit: AbortSignal): Promise<void> {
    const { session, queues } = this.#standing;
    try {
      // After a new connection, a server may lag behind what the old one has done for us.
      const [, ...looks] = await Promise.all([
        session.sync(limit),
        ...lookAt(session, queues, limit),
      ]);
      const paths = queues.flatMap((queue, i) => {
        const ours = looks[i]?.filter((name) => name.startsWith(this.#mark)) ?? [];
        return ours.map((name) => `${queue}/${name}`);
      });
      for (const path of paths) await removeIfThere(session, path, limit);
    } catch (error) {
      // They have ended with their session.
      if (!hasCode(error, "SESSION_EXPIRED")) throw error;
    }
  }

  #noHelp(cause: unknown): StoreUnavailableError {
    const { address } = this.#standing.session;
    return new StoreUnavailableError(address, "a place in line was not answered for", cause);
  }
}

function lostPlace(session: Session): SessionExpiredError {
  return new SessionExpiredError(session.id, "has lost its place in line");
}

/** Whether users can tell what it is; other errors are about requests, or of a limit that has passed. */
function isKnown(error: unknown): boolean {
  return isCertain(error) || hasCode(error, "SESSION_EXPIRED");
}
