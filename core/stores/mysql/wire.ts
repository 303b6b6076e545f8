import type { Socket } from "node:net";
import type { Connection, ConnectionOptions, createConnection } from "mysql2";
import {
  LONGEST_CONNECT,
  openSocket,
  PooledConnection,
  promised,
  type Wire,
} from "../sql/server/connection.ts";
import type { Killer } from "../sql/server/driver.ts";

/** How many KILLs of a connection may fail: several servers may share one address. */
const MOST_KILLS = 20;

/**
 * Settings that this package relies on, whatever the server's defaults or init_connect: a lone statement commits itself
 * and reads committed rows, COMMIT begins no other transaction, an abandoned statement waits for locks for 2 s at most, and
 * an empty text is no NULL. (A harmless mode takes the place of MariaDB's: in that mode, '' would be NULL here, too.)
 */
const SESSION_SETTINGS = `
  SET autocommit = 1, completion_type = 0, lock_wait_timeout = 2, innodb_lock_wait_timeout = 2;
  SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED;
  SET sql_mode = REPLACE(@@sql_mode, 'EMPTY_STRING_IS_NULL', 'NO_ENGINE_SUBSTITUTION');
  SELECT CONNECTION_ID() AS id, CONCAT(@@hostname, ':', @@port) AS server, @@max_allowed_packet AS packet`;

const ER_NET_PACKET_TOO_LARGE = 1153;

interface SessionRow {
  readonly id: number;
  readonly server: string;
  readonly packet: number | string;
}

export class MysqlWire implements Wire {
  readonly socket: Socket;
  readonly #connection: Connection;

  /** The connection's id at its server. */
  id = 0;
  server = "";
  failedKills = 0;

  /** The server refuses a request of this many bytes, and may end the connection before the client has read why. */
  #tooLong = Number.POSITIVE_INFINITY;

  constructor(create: typeof createConnection, options: ConnectionOptions) {
    const { host = "", port = 3306 } = options;
    this.socket = openSocket(host, port);
    this.#connection = create({
      ...options,
      stream: () => this.socket,
      connectTimeout: LONGEST_CONNECT,
      // Versions of mysql2 before 3.13 warn of the option.
      ...(!canCompile() && { disableEval: true }),
    });
    this.#connection.on("error", () => {});
  }

  async open(): Promise<void> {
    await promised((done) => this.#connection.connect((error) => done(error)));
    const answer = await this.query(SESSION_SETTINGS);
    const [row] = (answer as unknown[]).at(-1) as [SessionRow];
    this.id = row.id;
    this.server = row.server;
    this.#tooLong = Number(row.packet);
  }

  query(text: string): Promise<unknown> {
    // A byte before the text tells that it is a query.
    const bytes = 1 + text.length;
    if (bytes >= this.#tooLong) {
      const message = `a request of ${bytes} bytes; max_allowed_packet of the server is ${this.#tooLong}`;
      const error = Object.assign(new Error(message), { errno: ER_NET_PACKET_TOO_LARGE });
      return Promise.reject(error);
    }
    // With values, even none, mysql2 searches the whole text for placeholders.
    return promised((done) => this.#connection.query({ sql: text, values: null }, done));
  }

  ping(): Promise<unknown> {
    return promised((done) => this.#connection.ping(done));
  }

  end(): void {
    this.#connection.end(() => {});
  }
}

/** Kills connections over one of its own. */
export class MysqlKiller implements Killer<MysqlWire> {
  readonly #own: PooledConnection<MysqlWire>;

  constructor(connect: () => MysqlWire) {
    this.#own = new PooledConnection(connect());
  }

  get ready(): Promise<void> {
    return this.#own.ready;
  }

  async kill({ wire, isClosed }: PooledConnection<MysqlWire>): Promise<boolean> {
    try {
      if (wire.server !== this.#own.wire.server) {
        if (isClosed) return true;
        throw new Error("another server answers at this address");
      }
      if (isClosed) return await this.#hasEnded(wire);
      await this.#own.query(`KILL ${wire.id}`);
      return false;
    } catch (error) {
      if ((error as { errno?: number }).errno === ER_NO_SUCH_THREAD) return true;
      wire.failedKills += 1;
      if (wire.failedKills > MOST_KILLS) return true;
      throw error;
    }
  }

  destroy(): void {
    this.#own.destroy();
  }

  /** A server that has started again since then gives the same ids to others: nothing is killed. */
  async #hasEnded(wire: MysqlWire): Promise<boolean> {
    const found = await this.#own.query(
      `SELECT 1 FROM information_schema.processlist WHERE id = ${wire.id}`,
    );
    wire.failedKills += 1;
    return (found as readonly unknown[]).length === 0 || wire.failedKills > MOST_KILLS;
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
