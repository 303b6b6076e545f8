import { deadline, noAnswer, race } from "../../lock/abort.ts";
import {
  hasCode,
  isCertain,
  StoreUnavailableError,
  UnknownOutcomeError,
} from "../../lock/errors.ts";
import { after, type Millis } from "../../lock/time.ts";

/** What the masters have said to one question so far. */
export interface Tally<Master, T> {
  readonly said: ReadonlyMap<Master, T>;
  readonly failed: ReadonlyMap<Master, unknown>;

  /** How many more answers are worth waiting for. */
  readonly pending: number;
}

export type Question<Master, T> = (master: Master, limit: AbortSignal) => Promise<T>;

/** How long to wait for the rest once a quorum has answered. */
const REST: Millis = 500;

/** Masters that know nothing of each other, and what a majority of them says. */
export class Quorum<Master> {
  readonly masters: readonly Master[];

  /** More than half: two quorums always have a master in common. */
  readonly needed: number;
  readonly #store: string;
  readonly #timeout: Millis;

  /** Those that did not answer in time when they were asked last. */
  readonly #silent = new Set<Master>();
  readonly #underWay = new Set<Promise<unknown>>();

  /** `store` is its name, for messages; `timeout` is what a master has for one answer. */
  constructor(store: string, masters: readonly Master[], timeout: Millis) {
    this.#store = store;
    this.masters = masters;
    this.needed = Math.floor(masters.length / 2) + 1;
    this.#timeout = timeout;
  }

  /**
   * Asks all masters at once, and resolves as soon as the outcome is decided or nothing is left to wait for.
   *
   * Once a quorum has answered, the others have little time, and those that were silent before have none. All are
   * asked to the end all the same.
   */
  ask<T>(
    question: Question<Master, T>,
    isDecided: (tally: Tally<Master, T>) => boolean,
    signal?: AbortSignal,
  ): Promise<Tally<Master, T>> {
    const said = new Map<Master, T>();
    const failed = new Map<Master, unknown>();
    const { promise, resolve } = Promise.withResolvers<Tally<Master, T>>();
    const look = () => {
      const open = this.masters.filter((master) => !said.has(master) && !failed.has(master));
      const isEnough = said.size >= this.needed;
      const awaited = isEnough ? open.filter((master) => !this.#silent.has(master)) : open;
      const tally = { said, failed, pending: awaited.length };
      if (tally.pending > 0 && !isDecided(tally)) return;
      cancel();
      // Those that are still open go on to fill their maps.
      resolve({ ...tally, said: new Map(said), failed: new Map(failed) });
    };
    const cancel = after(REST, () => {
      for (const master of this.masters) {
        if (!said.has(master) && !failed.has(master)) this.#silent.add(master);
      }
      look();
    });
    for (const master of this.masters) {
      this.tell(master, question, signal)
        .then(
          (answer) => said.set(master, answer),
          (error) => failed.set(master, error),
        )
        .finally(look);
    }
    return promise;
  }

  /**
   * True: a quorum says yes. False: so many say no that none can. Rejects with a StoreUnavailableError when nobody
   * has said yes, or may have.
   */
  async vote(
    what: string,
    signal: AbortSignal,
    question: Question<Master, boolean>,
  ): Promise<boolean> {
    const spare = this.masters.length - this.needed;
    const isDecided = (tally: Tally<Master, boolean>) => {
      const [yes, no] = [countOf(tally, true), countOf(tally, false)];
      const isOpen = yes + tally.pending >= this.needed || no + tally.pending > spare;
      return yes >= this.needed || no > spare || !isOpen;
    };
    const tally = await this.ask(question, isDecided, signal);
    const yes = countOf(tally, true);
    if (yes >= this.needed) return true;
    if (countOf(tally, false) > spare) return false;
    const { said, failed } = tally;
    const haveAll = said.size + failed.size === this.masters.length;
    const isUntouched = haveAll && yes === 0 && [...failed.values()].every(isCertain);
    throw isUntouched ? this.unavailable(tally) : this.unknown(what, tally);
  }

  /** What a quorum says, and as many more as it takes. */
  async look<T>(
    question: (master: Master) => Promise<T>,
    isEnough: (said: readonly T[], pending: number) => boolean,
  ): Promise<readonly T[]> {
    const tally = await this.ask(
      (master, limit) => race(question(master), limit),
      ({ said, pending }) => said.size >= this.needed && isEnough([...said.values()], pending),
    );
    if (tally.said.size < this.needed) throw this.unavailable(tally);
    return [...tally.said.values()];
  }

  /** Asks one of them, for as long as a master has. */
  async tell<T>(master: Master, question: Question<Master, T>, signal?: AbortSignal): Promise<T> {
    const limit = deadline(this.#timeout, noAnswer, signal);
    const asking = question(master, limit.signal);
    this.#underWay.add(asking);
    try {
      const answer = await asking;
      this.#silent.delete(master);
      return answer;
    } catch (error) {
      if (limit.signal.aborted && !signal?.aborted) this.#silent.add(master);
      else this.#silent.delete(master);
      throw error;
    } finally {
      this.#underWay.delete(asking);
      limit[Symbol.dispose]();
    }
  }

  /** The same, but waits no longer than for the rest, and not at all for one that was silent: then it is undefined. */
  async hint<T>(master: Master, question: Question<Master, T>): Promise<T | undefined> {
    const isSilent = this.#silent.has(master);
    const telling = this.tell(master, question);
    const { promise: over, resolve } = Promise.withResolvers<undefined>();
    const giveUp = () => {
      this.#silent.add(master);
      resolve(undefined);
    };
    const cancel = after(isSilent ? 0 : REST, giveUp);
    return Promise.race([telling, over]).finally(cancel);
  }

  /** Resolves when nothing is under way any more. */
  async settled(): Promise<void> {
    await Promise.allSettled(this.#underWay);
  }

  /** What to reject with when nothing has happened: a refusal where so many refuse that no quorum is left. */
  unavailable({ failed }: Tally<Master, unknown>): Error {
    const failures = [...failed.values()];
    const final = failures.filter((error) => hasCode(error, "STORE_REFUSED", "STORE_CLOSED"));
    if (final.length > this.masters.length - this.needed) return final[0] as Error;
    const all = `${this.needed} of ${this.masters.length} masters`;
    const problem = `it takes ${all}, and ${failures.length} failed`;
    return new StoreUnavailableError(this.#store, problem, toCause(failures));
  }

  unknown(what: string, { failed }: Tally<Master, unknown>): Error {
    return new UnknownOutcomeError(this.#store, what, toCause([...failed.values()]));
  }
}

export function countOf<Master>({ said }: Tally<Master, boolean>, vote: boolean): number {
  return [...said.values()].filter((each) => each === vote).length;
}

function toCause(failures: readonly unknown[]): unknown {
  return failures.length > 1 ? new AggregateError(failures) : failures[0];
}
