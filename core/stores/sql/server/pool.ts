import { deadline, noAnswer, race, sleep } from "../../../lock/abort.ts";
import { StoreClosedError } from "../../../lock/errors.ts";
import { after, elapsedSince, instant, type Millis } from "../../../lock/time.ts";
import { LONGEST_CONNECT, PooledConnection, type Wire } from "./connection.ts";
import type { Killer, PoolDriver } from "./driver.ts";

/** A connection with an answer within this time is used without a ping. */
const FRESH: Millis = 1_000;

/** A timer that is later than this tells of a frozen process. */
const LATE_TIMER: Millis = 100;

/** The longest wait for requests in flight when the pool closes. */
const LONGEST_CLOSE: Millis = 2_000;

/** How long a killer without work stays connected: the server sees the end of its connection late, and would count two. */
const KILLER_IDLE: Millis = 2_000;

/** How long a connection is new: the server's address has hardly changed since. */
const NEW: Millis = 1_000;

/** How long the pool makes no connection after the server has refused one as too many. */
const FULL_PAUSE: Millis = 100;

/**
 * Connections to one server: at most `size`, and one that kills abandoned connections. A connection counts until the
 * server has ended it.
 */
export class ConnectionPool<W extends Wire> {
  readonly #driver: PoolDriver<W>;
  readonly #size: number;
  #loaded: Promise<() => W> | undefined;
  readonly #open = new Set<PooledConnection<W>>();
  readonly #idle: PooledConnection<W>[] = [];
  readonly #abandoned = new Set<PooledConnection<W>>();

  /** Waiting callers in order. A waiter gets a connection, or undefined when it may make one. */
  readonly #waiters: ((given: PooledConnection<W> | undefined) => void)[] = [];
  readonly #emptied = Promise.withResolvers<void>();

  /** The server's refusal of one more connection, for 100 ms. */
  #fullError: unknown;
  #killing: Promise<void> | undefined;
  #killer: Killer<W> | undefined;
  #cancelKillerEnd = () => {};
  #closing: Promise<void> | undefined;
  #isOver = false;

  constructor(driver: PoolDriver<W>, size: number) {
    this.#driver = driver;
    this.#size = size;
  }

  /**
   * Lends a connection to the caller, until `release` or `abandon`. Rejects with a TypeError when the client is not
   * installed.
   */
  async acquire(limit: AbortSignal): Promise<PooledConnection<W>> {
    const connect = await this.#client();
    for (;;) {
      limit.throwIfAborted();
      if (this.#closing) throw new StoreClosedError();
      const mayConnect = this.#open.size < this.#size && this.#fullError === undefined;
      const given =
        this.#idle.pop() ??
        (mayConnect ? await this.#connect(connect, limit) : await this.#wait(limit));
      if (given && (await this.#isAlive(given, limit))) return given;
    }
  }

  /** Takes back an idle connection outside of any transaction. */
  release(connection: PooledConnection<W>): void {
    if (connection.isClosed) return;
    connection.answeredAt = instant();
    const next = connection.isOutdated ? undefined : this.#waiters.shift();
    if (next) next(connection);
    else if (this.#closing || connection.isOutdated) connection.end();
    else this.#idle.push(connection);
  }

  /**
   * Replaces all connections but those of the last second as soon as they are idle: new ones resolve the server's address
   * again. Does nothing if a new connection has led to the wrong server: another one would do the same.
   */
  renew(wrong: PooledConnection<W>): void {
    const isNew = ({ openedAt }: PooledConnection<W>) => elapsedSince(openedAt) < NEW;
    if (isNew(wrong)) return;
    for (const connection of this.#open) connection.isOutdated ||= !isNew(connection);
    for (const connection of this.#idle.splice(0)) {
      if (connection.isOutdated) connection.end();
      else this.#idle.push(connection);
    }
  }

  /** Takes back a connection in an unknown state. Resolves when the server has ended it. */
  abandon(connection: PooledConnection<W>): Promise<void> {
    if (connection.isClosed || this.#closing) connection.destroy();
    else {
      this.#abandoned.add(connection);
      // After its last answer, the server sees the end of the connection.
      void Promise.resolve(connection.pending).then(() => connection.destroy());
      this.#killing ??= this.#killAbandoned();
    }
    return connection.ended;
  }

  /** Ends all connections. Destroys idle ones after 400 ms, and those with a request in flight after 2 s. */
  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  async #close(): Promise<void> {
    for (const next of this.#waiters.splice(0)) next(undefined);
    for (const connection of this.#idle.splice(0)) connection.end();
    for (const connection of this.#abandoned) {
      if (connection.isClosed) this.#remove(connection);
      else connection.destroySoon();
    }
    using limit = deadline(LONGEST_CLOSE, noAnswer);
    if (this.#open.size > 0) await race(this.#emptied.promise, limit.signal).catch(() => {});
    this.#isOver = true;
    for (const connection of this.#open) connection.destroy();
    this.#killer?.destroy();
  }

  #client(): Promise<() => W> {
    this.#loaded ??= this.#driver.load();
    return this.#loaded;
  }

  /** Makes a connection. Resolves to undefined when the server refuses one more, and when another attempt may help. */
  async #connect(connect: () => W, limit: AbortSignal): Promise<PooledConnection<W> | undefined> {
    const startedAt = instant();
    const made = new PooledConnection(connect());
    this.#open.add(made);
    void made.closed.then(() => {
      // The server may still know an abandoned connection.
      if (!this.#abandoned.has(made) || this.#closing) this.#remove(made);
    });
    try {
      await race(made.ready, limit);
      this.#wakeWaiter();
      return made;
    } catch (error) {
      if (limit.aborted && !made.isClosed) {
        // A connection that is ready too late serves the next caller.
        made.ready.then(
          () => this.release(made),
          () => made.destroy(),
        );
        throw error;
      }
      made.destroy();
      // The process was frozen, so the client's timer came before the answer that had arrived.
      if (elapsedSince(startedAt) > LONGEST_CONNECT + LATE_TIMER) return undefined;
      if (!this.#driver.isFull(error)) throw error;
      this.#pauseConnecting(error);
      return undefined;
    }
  }

  #pauseConnecting(error: unknown): void {
    if (this.#fullError === undefined) {
      after(FULL_PAUSE, () => {
        this.#fullError = undefined;
        this.#wakeWaiter();
      });
    }
    this.#fullError = error;
    if (this.#killing === undefined) this.#endKiller();
  }

  async #wait(limit: AbortSignal): Promise<PooledConnection<W> | undefined> {
    const { promise, resolve } = Promise.withResolvers<PooledConnection<W> | undefined>();
    this.#waiters.push(resolve);
    try {
      return await race(promise, limit);
    } catch (reason) {
      const at = this.#waiters.indexOf(resolve);
      if (at >= 0) this.#waiters.splice(at, 1);
      // The waiter's turn came just as its signal aborted.
      else void promise.then((given) => (given ? this.release(given) : this.#wakeWaiter()));
      throw this.#fullError ?? reason;
    }
  }

  /** Lets the first waiter make a connection, if the pool may grow. */
  #wakeWaiter(): void {
    if (this.#fullError === undefined && this.#open.size < this.#size) {
      this.#waiters.shift()?.(undefined);
    }
  }

  #remove(connection: PooledConnection<W>): void {
    this.#open.delete(connection);
    this.#abandoned.delete(connection);
    connection.forget();
    const at = this.#idle.indexOf(connection);
    if (at >= 0) this.#idle.splice(at, 1);
    this.#wakeWaiter();
    if (this.#closing && this.#open.size === 0) this.#emptied.resolve();
  }

  /** Pings a connection that was idle for long: it may be dead without an error. */
  async #isAlive(connection: PooledConnection<W>, limit: AbortSignal): Promise<boolean> {
    if (connection.isClosed) return false;
    if (elapsedSince(connection.answeredAt) < FRESH) return true;
    const ping = connection.ping();
    try {
      if (await race(ping, limit)) return true;
      this.#abandonStale(connection);
      return false;
    } catch (reason) {
      void ping.then((isAlive) =>
        isAlive ? this.release(connection) : this.#abandonStale(connection),
      );
      throw reason;
    }
  }

  /** Abandons a dead connection, and all that were idle as long. */
  #abandonStale(dead: PooledConnection<W>): void {
    for (const idle of this.#idle.filter(({ answeredAt }) => elapsedSince(answeredAt) >= FRESH)) {
      this.#idle.splice(this.#idle.indexOf(idle), 1);
      // With a request in flight, `abandon` waits until the server has ended the connection.
      void idle.ping();
      void this.abandon(idle);
    }
    void this.abandon(dead);
  }

  /** Kills until the server knows none of the abandoned connections. */
  async #killAbandoned(): Promise<void> {
    for (let attempt = 0; this.#abandoned.size > 0 && !this.#isOver; attempt += 1) {
      this.#cancelKillerEnd();
      try {
        using limit = deadline(LONGEST_CONNECT, noAnswer);
        const connect = await this.#client();
        this.#killer ??= this.#driver.killer(connect);
        await race(this.#killer.ready, limit.signal);
        let failure: unknown;
        for (const connection of this.#abandoned) {
          const isEnded = await race(this.#killer.kill(connection), limit.signal).catch((error) => {
            failure ??= error;
            return false;
          });
          if (!isEnded) continue;
          connection.destroy();
          this.#remove(connection);
        }
        if (failure !== undefined) throw failure;
      } catch {
        this.#endKiller();
      }
      await sleep(Math.min(5 * 2 ** attempt, 200));
    }
    this.#killing = undefined;
    if (this.#isOver) this.#endKiller();
    else this.#cancelKillerEnd = after(KILLER_IDLE, () => this.#endKiller(), { idle: true });
  }

  #endKiller(): void {
    this.#killer?.destroy();
    this.#killer = undefined;
  }
}
