import type { ChildrenWait } from "../journal/changes.ts";
import { race, sleep } from "../lock/abort.ts";
import { eventually, nextTurn } from "../lock/event-loop.ts";
import type { Millis } from "../lock/time.ts";
import { type EngineFailure, HistoryEnd, isStop, Suspension } from "./errors.ts";

/** How long code may await something of its own: enough for a hash or an import, and little beside a wait of any length. */
export const OWN_PATIENCE: Millis = 20;

/**
 * All new work of a workflow passes through the gate.
 *
 * A step that is worth parking the run leaves its promise pending: for ever, or until its pause is over. The other
 * branches go on, and the gate halts once none of them can.
 */
export class ReplayGate {
  readonly #stopping = new AbortController();
  readonly #halted = Promise.withResolvers<undefined>();
  readonly #suspensions: Suspension[] = [];
  #failure: EngineFailure | undefined;
  #inProgress = 0;
  #commands = 0;
  #isWatching = false;
  #onIdle = () => {};

  /** Aborts with a Suspension or an EngineFailure. */
  get signal(): AbortSignal {
    return this.#stopping.signal;
  }

  /** Resolves when no branch can go on. */
  get halted(): Promise<undefined> {
    return this.#halted.promise;
  }

  /** The suspension that ends first. The end of the history if all branches wait for that. */
  get suspension(): Suspension {
    const [first = new Suspension("deadline", 0), ...rest] = this.#suspensions;
    const isLater = (a: Suspension, b: Suspension) =>
      a instanceof HistoryEnd || b.wakeIn < a.wakeIn;
    return rest.reduce((a, b) => (isLater(a, b) ? b : a), first);
  }

  /** When the ends of children wake the run, for all its branches together. */
  get childrenWait(): ChildrenWait | undefined {
    const waits = this.#suspensions.flatMap(({ children }) => children ?? []);
    if (waits.length === 0) return undefined;
    const count = waits.reduce((sum, wait) => sum + wait.count, 0);
    return { count, within: Math.min(...waits.map(({ within }) => within)) };
  }

  /**
   * Whether a branch that waits for a signal or children is to look for them: its timeout is over, or `news` more signals
   * or ends of children have come since the claim.
   */
  hasDueBranch(news: number): boolean {
    return this.#suspensions.some(({ reason, wakeIn, children }) => {
      if (reason !== "signal" && reason !== "child") return false;
      return wakeIn <= 0 || news >= (children?.count ?? 1);
    });
  }

  /** Notes that the workflow's code has made a call, new or replayed: it goes on. */
  noteCommand(): void {
    this.#commands += 1;
  }

  /** Does new work. Never settles when the work suspends the run or fails the engine. */
  async pass<T>(work: () => Promise<T>): Promise<T> {
    this.#inProgress += 1;
    const settled = await this.#settle(work);
    this.#noteDone();
    return settled ? settled.value() : new Promise<never>(() => {});
  }

  /** Lets work wait that is worth parking the run. Resolves only while other branches work: else the gate halts. */
  async suspend(suspension: Suspension): Promise<void> {
    this.#note(suspension);
    this.#noteDone();
    while (suspension.wakeIn > 0 || this.#inProgress === 0) {
      const span = Math.max(suspension.wakeIn, OWN_PATIENCE);
      await sleep(span, this.signal).catch(() => new Promise<never>(() => {}));
    }
    this.#suspensions.splice(this.#suspensions.indexOf(suspension), 1);
    this.#inProgress += 1;
  }

  /** Does work that needs no end, such as encoding a value: the gate does not wait for it once it has stopped. */
  hold<T>(work: () => Promise<T>): Promise<T> {
    return this.pass(() => race(work(), this.signal));
  }

  /** Aborts the work in progress, admits no new work, and halts. */
  stop(reason: Suspension | EngineFailure): void {
    if (this.signal.aborted) return;
    this.#note(reason);
    this.#stopping.abort(reason);
    void this.#haltWhenQuiet();
  }

  /** Aborts the work in progress, whose results are not needed, and admits no new work. */
  close(): void {
    this.#stopping.abort(new Suspension("deadline", 0));
  }

  /** Resolves when no work is in progress. Rejects with the error of an EngineFailure. */
  async idle(): Promise<void> {
    while (this.#inProgress > 0) {
      await new Promise<void>((resolve) => {
        this.#onIdle = resolve;
      });
    }
    if (this.#failure) throw this.#failure.error;
  }

  /** Resolves to undefined for work that suspends the run or fails the engine. */
  async #settle<T>(work: () => Promise<T>): Promise<{ value(): T } | undefined> {
    try {
      this.signal.throwIfAborted();
      const value = await work();
      return { value: () => value };
    } catch (error) {
      if (isStop(error)) return this.#note(error);
      const rethrow = () => {
        throw error;
      };
      return { value: rethrow };
    }
  }

  #noteDone(): void {
    this.#inProgress -= 1;
    this.#onIdle();
    void this.#haltWhenQuiet();
  }

  #note(reason: Suspension | EngineFailure): undefined {
    if (reason instanceof Suspension) this.#suspensions.push(reason);
    else this.#failure ??= reason;
  }

  async #haltWhenQuiet(): Promise<void> {
    if (this.#failure) return this.#halted.resolve(undefined);
    if (this.#isWatching || this.#suspensions.length === 0) return;
    this.#isWatching = true;
    while (this.#inProgress === 0 && !(await this.#isQuiet()));
    this.#isWatching = false;
    if (this.#inProgress === 0) this.#halted.resolve(undefined);
  }

  /**
   * Gives branches that await I/O of their own some time for it, unless the run is parked for a moment alone. What they
   * have received is lost in the next history.
   */
  async #isQuiet(): Promise<boolean> {
    const commands = this.#commands;
    const isBusy = () => this.#inProgress > 0 || this.#commands !== commands;
    const span = Math.min(OWN_PATIENCE, this.suspension.wakeIn / 10);
    const ends = this.#suspensions.filter((one) => one instanceof HistoryEnd);
    // A handler whose call has just ended counts as one that awaits something of its own.
    if (span === 0 || ends.length > 0) await nextTurn();
    const patience = span === 0 ? 0 : Math.max(span, ...ends.map((end) => end.patience()));
    return !(await eventually(isBusy, patience, this.signal));
  }
}
