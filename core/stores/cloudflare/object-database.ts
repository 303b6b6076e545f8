import { Semaphore } from "../../database/semaphore.ts";
import { serialTransaction } from "../../database/serial-transaction.ts";
import {
  type ConnectionLane,
  checkBatch,
  checkRead,
  checkTransaction,
  type Database,
  type Dialect,
  type Row,
  type Sql,
  type SqlResult,
  type Transaction,
} from "../../database/sql.ts";
import { deadline, follow, noAnswer, race, sleep } from "../../lock/abort.ts";
import {
  hasCode,
  StoreClosedError,
  StoreUnavailableError,
  UnknownOutcomeError,
} from "../../lock/errors.ts";
import { type Backoff, backoff, retry } from "../../lock/retry.ts";
import { LONGEST_CALL } from "../../lock/time.ts";
import { sqliteDialect } from "../sqlite/dialect.ts";
import { refusedError } from "./errors.ts";
import type { ObjectAnswer, ObjectCall, TransactionCall } from "./object-calls.ts";
import { toQuery } from "./query.ts";

/** A binding of a Durable Object's class. */
export interface ObjectNamespace {
  getByName(name: string): unknown;
}

/** Opens the database in the object with this name. */
export function objectDatabase(namespace: ObjectNamespace, name: string): Database {
  // A stub stays broken after its first failure.
  const stub = () => namespace.getByName(name) as { lockstep: SendCall };
  return new ObjectDatabase(`durable-object:${name}`, (call) => stub().lockstep(call));
}

/** The number of calls in the "work" lane at a time. */
const MOST_CALLS = 32;

export type SendCall = (call: ObjectCall) => Promise<ObjectAnswer>;

/** Bodies that conflict spread at random. One of them has committed each time. */
const REPEAT: Backoff = { base: 1, factor: 2, max: 50, jitter: "full" };

/**
 * The database in a Durable Object. `send` makes one call of the object.
 *
 * A transaction is optimistic: its calls are rolled back, and its commit executes all of its statements again, in one
 * transaction of the object, if their results are still the same. Otherwise the body is repeated. So no call waits for a
 * body, and a client that disappears leaves nothing behind.
 */
export class ObjectDatabase implements Database {
  readonly address: string;
  readonly dialect: Dialect;
  readonly #send: SendCall;

  /** Bounds the "work" lane. Calls wait here: an abandoned call in the object's queue is executed all the same. */
  readonly #work = new Semaphore(MOST_CALLS);
  #closed = false;

  /** `name` is that of the locks. */
  constructor(address: string, send: SendCall, name = "durable-objects") {
    this.address = address;
    this.dialect = { ...sqliteDialect, name, isOptimistic: true };
    this.#send = send;
  }

  async batch(
    statements: readonly Sql[],
    signal?: AbortSignal,
    lane: ConnectionLane = "work",
  ): Promise<readonly SqlResult[]> {
    checkBatch(statements, signal);
    using limit = this.#limit(signal);
    const { results } = await this.#call({ queries: statements.map(toQuery) }, limit.signal, lane);
    return results;
  }

  async read(statement: Sql, signal?: AbortSignal): Promise<readonly Row[]> {
    checkRead(statement, signal);
    const [result] = await this.batch([statement], signal, "locks").catch((error) => {
      throw this.#withoutEffect(error);
    });
    return result?.rows ?? [];
  }

  async transaction<T>(body: (tx: Transaction) => Promise<T>, signal?: AbortSignal): Promise<T> {
    checkTransaction(body, signal);
    using limit = this.#limit(signal);
    return await retry(
      () => this.#attempt(body, limit.signal),
      async (error, attempt) => {
        if (!(error instanceof ConflictError)) return undefined;
        await sleep(backoff(attempt, REPEAT), limit.signal).catch(() => {
          throw new StoreUnavailableError(this.address, error.message, error);
        });
        return 0;
      },
    );
  }

  async close(): Promise<void> {
    this.#closed = true;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  async #attempt<T>(body: (tx: Transaction) => Promise<T>, limit: AbortSignal): Promise<T> {
    let past: Omit<TransactionCall, "commits"> = { before: [], seen: "", at: undefined };
    const send = async (statements: readonly Sql[], commits: boolean) => {
      const queries = statements.map(toQuery);
      const call = { queries, transaction: { ...past, commits } };
      const { results, seen, at } = await this.#call(call, limit);
      past = { before: [...past.before, ...queries], seen, at };
      return results;
    };
    const calls: Transaction = {
      batch: (statements) =>
        send(statements, false).catch((error) => {
          throw this.#withoutEffect(error);
        }),
      commit: (statements) => send(statements, true),
    };
    const { run, failure } = serialTransaction(this.address, calls, limit);
    const [outcome] = await Promise.allSettled([run(body)]);
    // The body may have replaced or ignored the error.
    if (failure() instanceof ConflictError) throw failure();
    if (outcome.status === "rejected") throw outcome.reason;
    return outcome.value;
  }

  #limit(signal: AbortSignal | undefined) {
    return signal ? follow(signal) : deadline(LONGEST_CALL, noAnswer);
  }

  async #call(
    call: ObjectCall,
    limit: AbortSignal,
    lane: ConnectionLane = "work",
  ): Promise<ObjectAnswer & { kind: "done" }> {
    if (lane === "work") {
      await this.#work.acquire(limit).catch((reason) => {
        throw new StoreUnavailableError(this.address, "no time is left", reason);
      });
    }
    const answer = await this.#sendWithin(limit, call).finally(() => {
      if (lane === "work") this.#work.release();
    });
    if (answer.kind === "done") return answer;
    if (answer.kind === "conflict") throw new ConflictError();
    throw refusedError(this.address, answer.message);
  }

  async #sendWithin(limit: AbortSignal, call: ObjectCall): Promise<ObjectAnswer> {
    if (this.#closed) throw new StoreClosedError();
    if (limit.aborted)
      throw new StoreUnavailableError(this.address, "no time is left", limit.reason);
    return await race(this.#send(call), limit).catch((error) => {
      throw new UnknownOutcomeError(this.address, "a change was committed", error);
    });
  }

  /** The error of a call that changes nothing. */
  #withoutEffect(error: unknown): unknown {
    if (!hasCode(error, "UNKNOWN_OUTCOME")) return error;
    return new StoreUnavailableError(this.address, "the answer was lost", error);
  }
}

/** Another client has changed what a transaction has read. Nothing has happened. */
class ConflictError extends Error {
  constructor() {
    super(
      "other clients change the same rows all the time, or a statement of the transaction has other results each time",
    );
  }
}
