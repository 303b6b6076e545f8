import { deadline, noAnswer, race } from "../../lock/abort.ts";
import {
  hasCode,
  isCertain,
  StoreUnavailableError,
  UnknownOutcomeError,
} from "../../lock/errors.ts";
import { after, type Millis } from "../../lock/time.ts";

/** The answers of the masters to one request so far. */
export interface Answers<Master, T> {
  readonly said: ReadonlyMap<Master, T>;
  readonly failed: ReadonlyMap<Master, unknown>;

  /** How many more answers are worth waiting for. */
  readonly pending: number;
}

export type MasterRequest<Master, T> = (master: Master, limit: AbortSignal) => Promise<T>;

/** How long to wait for the other masters once a quorum has answered. */
const REST: Millis = 500;

/** Independent masters, and the decision of their majority. */
export class Quorum<Master> {
  readonly masters: readonly Master[];

  /** More than half: two quorums always have a master in common. */
  readonly needed: number;
  readonly #store: string;
  readonly #timeout: Millis;

  /** The masters that did not answer their last request in time. */
  readonly #silent = new Set<Master>();
  readonly #underWay = new Set<Promise<unknown>>();

  /** `store` is the name for messages; `timeout` is the longest wait for one answer. */
  constructor(store: string, masters: readonly Master[], timeout: Millis) {
    this.#store = store;
    this.masters = masters;
    this.needed = Math.floor(masters.length / 2) + 1;
    this.#timeout = timeout;
  }

  /**
   * Sends a request to all masters at once, and resolves when the outcome is decided or no answer is pending.
   *
   * Once a quorum has answered, the other masters have 500 ms, and masters that were silent before have none. The
   * requests to them still go on.
   */
  requestAll<T>(
    question: MasterRequest<Master, T>,
    isDecided: (tally: Answers<Master, T>) => boolean,
    signal?: AbortSignal,
  ): Promise<Answers<Master, T>> {
    const said = new Map<Master, T>();
    const failed = new Map<Master, unknown>();
    const { promise, resolve } = Promise.withResolvers<Answers<Master, T>>();
    const check = () => {
      const open = this.masters.filter((master) => !said.has(master) && !failed.has(master));
      const isEnough = said.size >= this.needed;
      const awaited = isEnough ? open.filter((master) => !this.#silent.has(master)) : open;
      const tally = { said, failed, pending: awaited.length };
      if (tally.pending > 0 && !isDecided(tally)) return;
      cancel();
      // Later answers still go into the original maps.
      resolve({ ...tally, said: new Map(said), failed: new Map(failed) });
    };
    const cancel = after(REST, () => {
      for (const master of this.masters) {
        if (!said.has(master) && !failed.has(master)) this.#silent.add(master);
      }
      check();
    });
    for (const master of this.masters) {
      this.request(master, question, signal)
        .then(
          (answer) => said.set(master, answer),
          (error) => failed.set(master, error),
        )
        .finally(check);
    }
    return promise;
  }

  /**
   * Resolves to true when a quorum answers yes, and to false when so many answer no that no quorum is possible. Rejects
   * with a StoreUnavailableError when no master can have executed the request.
   */
  async vote(
    what: string,
    signal: AbortSignal,
    question: MasterRequest<Master, boolean>,
  ): Promise<boolean> {
    const spare = this.masters.length - this.needed;
    const isDecided = (tally: Answers<Master, boolean>) => {
      const [yes, no] = [countVotes(tally, true), countVotes(tally, false)];
      const isOpen = yes + tally.pending >= this.needed || no + tally.pending > spare;
      return yes >= this.needed || no > spare || !isOpen;
    };
    const tally = await this.requestAll(question, isDecided, signal);
    const yes = countVotes(tally, true);
    if (yes >= this.needed) return true;
    if (countVotes(tally, false) > spare) return false;
    const { said, failed } = tally;
    const haveAll = said.size + failed.size === this.masters.length;
    const isUntouched = haveAll && yes === 0 && [...failed.values()].every(isCertain);
    throw isUntouched ? this.unavailable(tally) : this.unknown(what, tally);
  }

  /** Resolves to the answers of a quorum, and of more masters until `isEnough`. */
  async read<T>(
    question: (master: Master) => Promise<T>,
    isEnough: (said: readonly T[], pending: number) => boolean,
  ): Promise<readonly T[]> {
    const tally = await this.requestAll(
      (master, limit) => race(question(master), limit),
      ({ said, pending }) => said.size >= this.needed && isEnough([...said.values()], pending),
    );
    if (tally.said.size < this.needed) throw this.unavailable(tally);
    return [...tally.said.values()];
  }

  /** Sends a request to one master, limited by the timeout. */
  async request<T>(
    master: Master,
    question: MasterRequest<Master, T>,
    signal?: AbortSignal,
  ): Promise<T> {
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

  /** Sends a request to one master, waits 500 ms, or not at all for a silent master, and then resolves to undefined. */
  async requestBriefly<T>(
    master: Master,
    question: MasterRequest<Master, T>,
  ): Promise<T | undefined> {
    const isSilent = this.#silent.has(master);
    const telling = this.request(master, question);
    const { promise: over, resolve } = Promise.withResolvers<undefined>();
    const giveUp = () => {
      this.#silent.add(master);
      resolve(undefined);
    };
    const cancel = after(isSilent ? 0 : REST, giveUp);
    return Promise.race([telling, over]).finally(cancel);
  }

  /** Resolves when no request is under way, or after 500 ms. */
  async settled(): Promise<void> {
    const { promise: over, resolve } = Promise.withResolvers<void>();
    const cancel = after(REST, resolve);
    await Promise.race([Promise.allSettled(this.#underWay), over]).finally(cancel);
  }

  /** Returns the error when no master has changed anything: a refusal when the other masters are too few for a quorum. */
  unavailable({ failed }: Answers<Master, unknown>): Error {
    const failures = [...failed.values()] as readonly Error[];
    const final = failures.filter((error) => hasCode(error, "STORE_REFUSED", "STORE_CLOSED"));
    if (final.length > this.masters.length - this.needed) return final[0] as Error;
    const all = `${this.needed} of ${this.masters.length} masters`;
    const problem = `it takes ${all}, and ${failures.length} failed: ${failures[0]?.message}`;
    return new StoreUnavailableError(this.#store, problem, toCause(failures));
  }

  unknown(what: string, { failed }: Answers<Master, unknown>): Error {
    return new UnknownOutcomeError(this.#store, what, toCause([...failed.values()]));
  }
}

export function countVotes<Master>({ said }: Answers<Master, boolean>, vote: boolean): number {
  return [...said.values()].filter((each) => each === vote).length;
}

function toCause(failures: readonly unknown[]): unknown {
  return failures.length > 1 ? new AggregateError(failures) : failures[0];
}
