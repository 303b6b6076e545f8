import { connect, type Socket } from "node:net";
import { deadline, noAnswer, race } from "../../../lock/abort.ts";
import { after, instant, type Millis } from "../../../lock/time.ts";

/** The longest time to connect. */
export const LONGEST_CONNECT: Millis = 5_000;

/** The longest wait for a ping. After that, a new connection is faster. */
const LONGEST_PING: Millis = 250;

/** The longest time an idle connection takes to end. */
const LONGEST_END: Millis = 400;

/** A connection of a database's client. */
export interface Wire {
  readonly socket: Socket;

  /** Logs in, and makes the settings that this package relies on. */
  open(): Promise<void>;

  /** Executes the text of one or several statements in one round trip. */
  query(text: string): Promise<unknown>;
  ping(): Promise<unknown>;

  /** Tells the server that the connection ends. */
  end(): void;
}

/** The bounds of the clients themselves end with the handshake, before our settings. */
async function openInTime(wire: Wire): Promise<void> {
  using limit = deadline(LONGEST_CONNECT, noAnswer);
  await race(wire.open(), limit.signal);
}

/** Opens a socket that keeps its connection alive. */
export function openSocket(host: string, port: number): Socket {
  return connect({
    host,
    port,
    noDelay: true,
    keepAlive: true,
    keepAliveInitialDelay: KEEP_ALIVE_DELAY,
  });
}

/** How long a connection is silent before the first probe. */
export const KEEP_ALIVE_DELAY: Millis = 5_000;

/** A connection of the pool, and its state. */
export class PooledConnection<W extends Wire = Wire> {
  readonly wire: W;
  readonly #closed = Promise.withResolvers<void>();
  readonly #ended = Promise.withResolvers<void>();

  /** Resolves when the connection can be used. */
  readonly ready: Promise<void>;
  readonly openedAt = instant();

  /** The time of the server's last answer. */
  answeredAt = instant();

  /** Whether the connection ends when it is idle. */
  isOutdated = false;

  /** Resolves when the last request is answered or has failed. Undefined without a request in flight. */
  pending: Promise<void> | undefined;

  constructor(wire: W) {
    this.wire = wire;
    wire.socket.on("end", () => this.destroy());
    wire.socket.on("close", () => this.destroy());
    this.ready = this.#request(() => openInTime(wire));
    this.ready.catch(() => {});
  }

  get isClosed(): boolean {
    return this.wire.socket.destroyed;
  }

  /** Resolves when the client's side of the connection is closed. */
  get closed(): Promise<void> {
    return this.#closed.promise;
  }

  /** Resolves when the pool no longer counts the connection. */
  get ended(): Promise<void> {
    return this.#ended.promise;
  }

  /** Resolves `ended`. */
  forget(): void {
    this.#ended.resolve();
  }

  query(text: string): Promise<unknown> {
    return this.#request(() => this.wire.query(text));
  }

  /** Resolves to whether the server answers a ping in time. */
  async ping(): Promise<boolean> {
    const late = Promise.withResolvers<boolean>();
    // After a blocked event loop, an answer that has already arrived is read before setImmediate.
    const cancel = after(LONGEST_PING, () => setImmediate(() => late.resolve(false)));
    const answer = this.#request(() => this.wire.ping());
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

  /** Ends the connection, and destroys it if the server does not answer. */
  end(): void {
    this.wire.end();
    this.destroySoon();
  }

  destroySoon(): void {
    after(LONGEST_END, () => this.destroy(), { idle: true });
  }

  destroy(): void {
    this.wire.socket.destroy();
    this.#closed.resolve();
  }

  #request<T>(call: () => Promise<T>): Promise<T> {
    const answer = call();
    const settled = () => {
      this.answeredAt = instant();
      if (this.pending === pending) this.pending = undefined;
    };
    const pending = answer.then(settled, settled);
    this.pending = pending;
    return answer;
  }
}

/** Turns a call with a callback into a promise. Not a client's own promises, some of which capture a stack for each query. */
export function promised(
  call: (done: (error: unknown, answer?: unknown) => void) => void,
): Promise<unknown> {
  return new Promise((resolve, reject) =>
    call((error, value) => (error ? reject(error) : resolve(value))),
  );
}
