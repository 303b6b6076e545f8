import { connect, Socket } from "node:net";
import type { Client, ClientConfig } from "pg";
import { after } from "../../lock/time.ts";
import {
  KEEP_ALIVE_DELAY,
  LONGEST_CONNECT,
  type PooledConnection,
  promised,
  type Wire,
} from "../sql/server/connection.ts";
import type { Killer } from "../sql/server/driver.ts";

export class PostgresWire implements Wire {
  readonly socket = new Socket();
  readonly #client: Client;
  cancellations = 0;

  constructor(client: typeof Client, config: ClientConfig) {
    this.#client = new client({
      ...config,
      stream: () => this.socket,
      keepAlive: true,
      keepAliveInitialDelayMillis: KEEP_ALIVE_DELAY,
      connectionTimeoutMillis: LONGEST_CONNECT,
    });
    // An error outside of any request: the server has ended the session.
    this.#client.on("error", () => this.socket.destroy());
  }

  async open(): Promise<void> {
    await promised((done) => this.#client.connect(done));
  }

  query(text: string): Promise<unknown> {
    return promised((done) => this.#client.query(text, done));
  }

  /** Calls `onNotice` with each notice that the session listens to. */
  onNotice(onNotice: (channel: string, text: string) => void): void {
    this.#client.on("notification", ({ channel, payload = "" }) => onNotice(channel, payload));
  }

  /** The id of the process that serves this connection, as the login said. A pooler gives ids of its own. */
  get serverProcess(): number | null {
    return this.#backendKey.processID;
  }

  ping(): Promise<unknown> {
    return this.query("SELECT 1");
  }

  end(): void {
    this.#client.end(() => {});
  }

  get #backendKey(): BackendKey {
    return this.#client as unknown as BackendKey;
  }

  /**
   * Asks the server to cancel the statement in execution, which then fails with error 57014. Such a request has a connection
   * of its own, and a pooler passes it on (https://www.postgresql.org/docs/current/protocol-flow.html).
   */
  cancel(signal: AbortSignal): Promise<void> {
    const { processID, secretKey } = this.#backendKey;
    const { host, port } = this.#client;
    const request = Buffer.alloc(16);
    [16, CANCEL_REQUEST, processID ?? 0, secretKey ?? 0].forEach((word, i) => {
      request.writeInt32BE(word, 4 * i);
    });
    return new Promise((resolve, reject) => {
      // Without the end of our side: PgBouncer drops the request of a client that has gone, and up to 1.19 crashes.
      const socket = connect({ host, port, signal }, () => socket.write(request));
      const cancel = after(LONGEST_CONNECT, () => socket.destroy());
      socket.on("error", reject);
      // The server closes the connection when it has sent the signal to its process.
      socket.on("close", () => {
        cancel();
        resolve();
      });
      socket.resume();
    });
  }
}

/** The key that the server sends after the login, for cancellations. */
interface BackendKey {
  readonly processID: number | null;
  readonly secretKey: number | null;
}

const CANCEL_REQUEST = 80_877_102;

/** How many times a statement is cancelled: its connection may be dead. `lock_timeout` ends its waits by then. */
const MOST_CANCELLATIONS = 20;

export class PostgresKiller implements Killer<PostgresWire> {
  readonly ready = Promise.resolve();
  readonly #closing = new AbortController();

  /** The pool closes the connection when the cancelled statement has failed. */
  async kill({ wire, isClosed }: PooledConnection<PostgresWire>): Promise<boolean> {
    if (isClosed) return true;
    wire.cancellations += 1;
    if (wire.cancellations > MOST_CANCELLATIONS) return true;
    await wire.cancel(this.#closing.signal);
    return false;
  }

  destroy(): void {
    this.#closing.abort();
  }
}
