import { connect, type Socket } from "node:net";
import type { Connection, ConnectionOptions, createConnection } from "mysql2";
import { after, instant, type Millis } from "../../lock/time.ts";

/** The longest time to connect. */
export const LONGEST_CONNECT: Millis = 5_000;

/** The longest wait for a ping. After that, a new connection is faster. */
const LONGEST_PING: Millis = 250;

/** The longest time an idle connection takes to end. */
const LONGEST_END: Millis = 400;

/** How many KILLs of a connection may fail: several servers may share one address. */
const MOST_KILLS = 20;

/**
 * Settings that this package relies on, whatever the server's defaults or init_connect: a lone statement commits itself,
 * COMMIT begins no other transaction, and an abandoned statement waits for locks for 2 s at most.
 */
const SESSION_SETTINGS = `
  SET autocommit = 1, completion_type = 0, lock_wait_timeout = 2, innodb_lock_wait_timeout = 2;
  SELECT CONNECTION_ID() AS id, CONCAT(@@hostname, ':', @@port) AS server`;

/** A connection of the pool, and its state. */
export class PooledConnection {
  readonly #connection: Connection;
  readonly #socket: Socket;
  readonly #closed = Promise.withResolvers<void>();

  /** Resolves when the connection has its session settings. */
  readonly ready: Promise<void>;

  /** The time of the server's last answer. */
  answeredAt = instant();
  isClosed = false;

  /** Resolves when the last request is answered or has failed. Undefined without a request in flight. */
  pending: Promise<void> | undefined;

  /** The connection's id at its server. */
  #id = 0;
  #server = "";
  #failedKills = 0;

  constructor(create: typeof createConnection, options: ConnectionOptions) {
    const { host = "", port = 3306 } = options;
    this.#socket = connect({
      host,
      port,
      noDelay: true,
      keepAlive: true,
      keepAliveInitialDelay: 5_000,
    });
    this.#connection = create({
      ...options,
      stream: () => this.#socket,
      connectTimeout: LONGEST_CONNECT,
      // Versions of mysql2 before 3.13 warn of the option.
      ...(!canCompile() && { disableEval: true }),
    });
    this.#connection.on("error", () => {});
    this.#socket.on("end", () => this.destroy());
    this.#socket.on("close", () => this.destroy());
    this.ready = this.#connect();
    this.ready.catch(() => {});
  }

  /** Resolves when the connection is closed. */
  get closed(): Promise<void> {
    return this.#closed.promise;
  }

  /** Not mysql2/promise, which captures a stack trace for each query. */
  query(text: string): Promise<unknown> {
    return this.#request((done) => this.#connection.query(text, done));
  }

  /** Resolves to whether the server answers a ping in time. */
  async ping(): Promise<boolean> {
    const late = Promise.withResolvers<boolean>();
    // After a blocked event loop, an answer that has already arrived is read before setImmediate.
    const cancel = after(LONGEST_PING, () => setImmediate(() => late.resolve(false)));
    const answer = this.#request((done) => this.#connection.ping((error) => done(error, true)));
    const isAlive = await Promise.race([
      answer.then(
        () => true,
        () => false,
      ),
      late.promise,
    ]);
    cancel();
    return isAlive;
  }

  /** Kills another connection. Resolves to true when the server no longer knows it, or after 20 failures. */
  async kill(other: PooledConnection): Promise<boolean> {
    try {
      if (other.#server !== this.#server) throw new Error("another server answers at this address");
      await this.query(`KILL ${other.#id}`);
      return false;
    } catch (error) {
      if ((error as { errno?: number }).errno === ER_NO_SUCH_THREAD) return true;
      other.#failedKills += 1;
      if (other.#failedKills > MOST_KILLS) return true;
      throw error;
    }
  }

  /** Ends the connection, and destroys it if the server does not answer. */
  end(): void {
    this.#connection.end(() => {});
    this.destroySoon();
  }

  destroySoon(): void {
    after(LONGEST_END, () => this.destroy(), { idle: true });
  }

  destroy(): void {
    this.#socket.destroy();
    this.isClosed = true;
    this.#closed.resolve();
  }

  async #connect(): Promise<void> {
    await this.#request((done) => this.#connection.connect((error) => done(error, undefined)));
    const answer = await this.query(SESSION_SETTINGS);
    const [, [row]] = answer as [unknown, [{ id: number; server: string }]];
    this.#id = row.id;
    this.#server = row.server;
  }

  #request(call: (done: (error: unknown, answer?: unknown) => void) => void): Promise<unknown> {
    const answer = new Promise((resolve, reject) =>
      call((error, value) => (error ? reject(error) : resolve(value))),
    );
    const settled = () => {
      this.answeredAt = instant();
      if (this.pending === pending) this.pending = undefined;
    };
    const pending = answer.then(settled, settled);
    this.pending = pending;
    return answer;
  }
}

const ER_NO_SUCH_THREAD = 1094;

/** Whether the runtime compiles functions from text, as mysql2 does for the rows of a result. Workers do not. */
function canCompile(): boolean {
  try {
    // Workers allow a function without text.
    return new Function("return true")();
  } catch {
    return false;
  }
}
