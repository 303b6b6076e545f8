import { serialTransaction } from "../../core/database/serial-transaction.ts";
import {
  type ConnectionLane,
  type Database,
  type Row,
  type Sql,
  type SqlResult,
  type SqlValue,
  sql,
  type Transaction,
} from "../../core/database/sql.ts";
import { deadline, follow, noAnswer, sleep } from "../../core/lock/abort.ts";
import { hasCode, StoreUnavailableError, UnknownOutcomeError } from "../../core/lock/errors.ts";
import { backoff, retry } from "../../core/lock/retry.ts";
import { LONGEST_CALL } from "../../core/lock/time.ts";
import { RolledBackError } from "../../core/stores/sql/server/driver.ts";
import { sqliteDialect } from "../../core/stores/sqlite/dialect.ts";
import { drawFate, type Fate, type Fault, type NetworkFault } from "./faults.ts";
import type { Plan } from "./plan.ts";
import type { Random } from "./random.ts";
import { type Machine, microsOf, type World } from "./world.ts";

/** Stands for the store's time in a statement, until the store executes it. */
const NOW = -(2n ** 62n);

const dialect = { ...sqliteDialect, now: sql`${NOW}` };
const address = "the simulated store";

const never = new AbortController().signal;

/** Called with all locks after a request for locks, and its statements. */
type LocksListener = (locks: readonly Row[], statements: readonly Sql[]) => void;

/** The store's process: a real SQLite database in memory, on a clock of its own. */
export class StoreServer {
  readonly machine: Machine;
  onLocks: LocksListener = () => {};

  /** Called before a request is executed for the second time. */
  onRepetition: (statements: readonly Sql[]) => void = () => {};
  readonly #world: World;
  readonly #database: Database;
  readonly #plan: Plan;

  constructor(world: World, machine: Machine, options: { database: Database; plan: Plan }) {
    this.#world = world;
    this.machine = machine;
    this.#database = options.database;
    this.#plan = options.plan;
  }

  /** The store's time in microseconds since 1970. */
  get now(): number {
    return microsOf(this.machine, this.#world.now);
  }

  async execute(
    statements: readonly Sql[],
    lane: ConnectionLane,
    isRepetition: boolean,
  ): Promise<readonly SqlResult[]> {
    if (isRepetition) this.onRepetition(statements);
    const timed = this.#timed(statements);
    if (lane === "work") return this.#database.batch(timed, never, lane);
    const results = await this.#database.batch([...timed, READ_LOCKS], never, lane);
    this.onLocks(results.at(-1)?.rows ?? [], statements);
    return results.slice(0, -1);
  }

  /** Begins a transaction. */
  open(): Session {
    const session = new Session(this.#plan.longestSilence);
    const serve = ({ batch, commit }: Transaction) =>
      session.serve({
        batch: (statements) => batch(this.#timed(statements)),
        commit: (statements) => commit(this.#timed(statements)),
      });
    this.#database.transaction(serve, never).catch(() => {});
    return session;
  }

  /** The time is read when the statement is executed: it may wait for an open transaction. */
  #timed(statements: readonly Sql[]): readonly Sql[] {
    const at = (value: SqlValue) => (value === NOW ? BigInt(this.now) : value);
    return statements.map(({ texts, values }) => ({
      texts,
      get values() {
        return values.map(at);
      },
    }));
  }
}

const READ_LOCKS = sql`SELECT name, owner, expires_at FROM lockstep_lock`;

interface Command {
  readonly statements: readonly Sql[];
  readonly isCommit: boolean;
  readonly answer: PromiseWithResolvers<readonly SqlResult[]>;
}

/** A transaction at the store, whose statements come one message after the other. */
class Session {
  readonly #longestSilence: number;
  #isOver = false;
  #command: Command | undefined;
  #wake = () => {};

  constructor(longestSilence: number) {
    this.#longestSilence = longestSilence;
  }

  run(statements: readonly Sql[], isCommit: boolean): Promise<readonly SqlResult[]> {
    if (this.#isOver) throw new RolledBackError("the transaction has ended");
    const answer = Promise.withResolvers<readonly SqlResult[]>();
    this.#command = { statements, isCommit, answer };
    this.#wake();
    return answer.promise;
  }

  close(): void {
    this.#isOver = true;
    this.#wake();
  }

  /** Rolls back when the client closes the connection, or is silent for too long. */
  async serve({ batch, commit }: Transaction): Promise<void> {
    try {
      for (;;) {
        const command = await this.#next();
        if (!command) return;
        const { statements, isCommit, answer } = command;
        const results = (isCommit ? commit : batch)(statements);
        results.then(answer.resolve, answer.reject);
        await results;
        if (isCommit) return;
      }
    } finally {
      this.#isOver = true;
      this.#command?.answer.reject(new RolledBackError("the transaction has ended"));
    }
  }

  async #next(): Promise<Command | undefined> {
    if (!this.#command && !this.#isOver) {
      const { promise, resolve } = Promise.withResolvers<void>();
      this.#wake = resolve;
      const silence = setTimeout(resolve, this.#longestSilence);
      await promise;
      clearTimeout(silence);
    }
    const command = this.#command;
    this.#command = undefined;
    return this.#isOver ? undefined : command;
  }
}

/** The connections between the clients and the store, which lose, delay and repeat messages. */
export class Network {
  readonly server: StoreServer;
  readonly world: World;
  readonly plan: Plan;
  readonly onFault: (fault: Fault, machine: Machine, request: string) => void;

  /** Whether the faults have ended. */
  isHealed = false;

  constructor(
    world: World,
    server: StoreServer,
    { plan, onFault }: Pick<Network, "plan" | "onFault">,
  ) {
    this.world = world;
    this.server = server;
    this.plan = plan;
    this.onFault = onFault;
  }
}

/** Thrown when no answer came. */
const LOST = new Error("no answer came");

/** A client's driver: the contract of `Database` over messages to the store. Duplicates come to batches alone. */
export class RemoteDatabase implements Database {
  readonly address = address;
  readonly dialect = dialect;
  readonly #network: Network;
  readonly #machine: Machine;
  readonly #random: Random;
  #requests = 0;

  /** Called with the number of each request. */
  readonly #onRequest: (request: number) => void;

  constructor(
    network: Network,
    machine: Machine,
    { random, onRequest }: { random: Random; onRequest: (request: number) => void },
  ) {
    this.#network = network;
    this.#machine = machine;
    this.#random = random;
    this.#onRequest = onRequest;
  }

  async batch(
    statements: readonly Sql[],
    signal?: AbortSignal,
    lane: ConnectionLane = "work",
  ): Promise<readonly SqlResult[]> {
    const { server } = this.#network;
    using limit = signal ? follow(signal) : deadline(LONGEST_CALL, noAnswer);
    try {
      const execute = (isRepetition: boolean) => server.execute(statements, lane, isRepetition);
      return await this.#send(execute, limit.signal, true);
    } catch (error) {
      throw error === LOST ? new UnknownOutcomeError(address, "a request was executed") : error;
    }
  }

  async read(statement: Sql, signal?: AbortSignal): Promise<readonly Row[]> {
    try {
      return (await this.batch([statement], signal))[0]?.rows ?? [];
    } catch (error) {
      if (!hasCode(error, "UNKNOWN_OUTCOME")) throw error;
      throw new StoreUnavailableError(address, "the answer to a read was lost", error);
    }
  }

  async transaction<T>(body: (tx: Transaction) => Promise<T>, signal?: AbortSignal): Promise<T> {
    using limit = signal ? follow(signal) : deadline(LONGEST_CALL, noAnswer);
    return await retry(
      () => this.#transact(body, limit.signal),
      async (error, attempt) => {
        if (!(error instanceof RolledBackError)) return undefined;
        await sleep(backoff(attempt), limit.signal).catch(() => {
          throw new StoreUnavailableError(address, error.message, error);
        });
        return 0;
      },
    );
  }

  async #transact<T>(body: (tx: Transaction) => Promise<T>, limit: AbortSignal): Promise<T> {
    const { world, server } = this.#network;
    let session: Session | undefined;
    let isCommitSent = false;
    const send = async (statements: readonly Sql[], isCommit: boolean) => {
      isCommitSent ||= isCommit;
      const run = async () => {
        session ??= server.open();
        return session.run(statements, isCommit);
      };
      try {
        return await this.#send(run, limit);
      } catch (error) {
        if (error === LOST && isCommit) {
          throw new UnknownOutcomeError(address, "a transaction was committed");
        }
        const isOutage = error === LOST || hasCode(error, "STORE_UNAVAILABLE");
        throw isOutage ? new RolledBackError("the connection was lost") : error;
      }
    };
    const calls: Transaction = {
      batch: (statements) => send(statements, false),
      commit: (statements) => send(statements, true),
    };
    const { run, failure } = serialTransaction(address, calls, limit);
    try {
      return await run(body);
    } catch (error) {
      throw failure() instanceof RolledBackError ? failure() : error;
    } finally {
      // After a COMMIT on the way, nothing follows on the connection.
      if (!isCommitSent) world.post(server.machine, 1, () => session?.close());
    }
  }

  async close(): Promise<void> {}

  async [Symbol.asyncDispose](): Promise<void> {}

  /** Sends one message to the store. Rejects with LOST when the limit aborts or the connection is cut. */
  #send<T>(
    work: (isRepetition: boolean) => Promise<T>,
    limit: AbortSignal,
    mayRepeat = false,
  ): Promise<T> {
    if (limit.aborted) throw new StoreUnavailableError(address, "the request was not sent");
    const { world, server } = this.#network;
    const machine = this.#machine;
    const fate = this.#fate(mayRepeat);
    const { there, back, late, cutAfter } = fate;
    const isCutOff = machine.cutOffUntil > world.now;
    const fault = isCutOff ? cutOff(fate) : fate.fault;
    return new Promise<T>((resolve, reject) => {
      const lose = () => reject(LOST);
      limit.addEventListener("abort", lose, { once: true });
      const answerWith = (settle: () => void) => {
        if (fault === "answer lost") return;
        const delay = back + (fault === "answer late" ? late : 0);
        world.post(machine, delay, () => {
          limit.removeEventListener("abort", lose);
          settle();
        });
      };
      const execute = () =>
        work(false).then(
          (answer) => answerWith(() => resolve(answer)),
          (error) => answerWith(() => reject(error)),
        );
      if (fault === "request refused") {
        const refuse = () => reject(new StoreUnavailableError(address, "connection refused"));
        world.post(machine, there, refuse);
        return;
      }
      if (fault !== "request lost") {
        world.post(server.machine, there + (fault === "request late" ? late : 0), execute);
      }
      if (fault === "request twice") {
        world.post(server.machine, there + late, () => void work(true).catch(() => {}));
      }
      if (fault && fault !== "request twice" && cutAfter !== undefined) {
        world.post(machine, cutAfter, lose);
      }
    });
  }

  #fate(mayRepeat: boolean): Fate {
    const { plan, isHealed, onFault } = this.#network;
    const number = this.#requests;
    this.#requests += 1;
    this.#onRequest(number);
    const request = `${this.#machine.name}:${number}`;
    const isSpared = isHealed || plan.spared.has(request);
    const fate = drawFate(this.#random, plan.faultRate, plan.ttl, isSpared);
    if (fate.fault === "request twice" && !mayRepeat) return { ...fate, fault: undefined };
    if (fate.fault) onFault(fate.fault, this.#machine, request);
    return fate;
  }
}

/** During a partition, messages are lost, or the client is told so. */
function cutOff({ cutAfter }: Fate): NetworkFault {
  return cutAfter === undefined ? "request lost" : "request refused";
}
