import { deadline, noAnswer, race } from "../lock/abort.ts";
import { checkSpan, checkText, checkWhole } from "../lock/checks.ts";
import { StoreClosedError, StoreUnavailableError, UnknownOutcomeError } from "../lock/errors.ts";
import type { Millis } from "../lock/time.ts";
import type { Connect, Connection } from "./connection.ts";
import { CommandFailure, toError } from "./failure.ts";
import type {
  CallOptions,
  Command,
  Input,
  Redis,
  RedisOptions,
  Replicas,
  Reply,
  Script,
  Subscriber,
} from "./redis.ts";
import { Subscription } from "./subscription.ts";

/** Redis over connections of whichever kind: one for commands, and one for each subscription. */
export function redisOver(
  connectTo: (options: RedisOptions, timeout: Millis) => Connect,
  options: RedisOptions,
): Redis {
  const { host, port = 6_379, database = 0, timeout = 5_000 } = options;
  checkText("host", host, 1_000);
  checkWhole("port", port, 1, 65_535);
  checkWhole("database", database, 0, Number.MAX_SAFE_INTEGER);
  checkSpan("timeout", timeout, 1);
  const address = `redis at ${host.includes(":") ? `[${host}]` : host}:${port}`;
  return new Client(address, timeout, connectTo(options, timeout));
}

class Client implements Redis {
  readonly address: string;
  readonly #timeout: Millis;
  readonly #connect: Connect;
  readonly #closing = new AbortController();
  readonly #subscriptions = new Set<Subscription>();
  #connection: Connection | undefined;
  #connecting: Promise<Connection> | undefined;

  constructor(address: string, timeout: Millis, connect: Connect) {
    this.address = address;
    this.#timeout = timeout;
    this.#connect = connect;
  }

  run(script: Script, input: Input): Promise<Reply> {
    return this.#send(
      async (connection) => (await runOn(connection, script, input))[0],
      input.signal,
      script.reads,
    );
  }

  async runOnReplicas(script: Script, input: Input, { count, span }: Replicas) {
    // Silence for longer than the timeout is taken for the end of a connection.
    const wait: Command = ["WAIT", count, Math.ceil(Math.min(span, this.#timeout / 2))];
    const send = (connection: Connection) => runOn(connection, script, input, wait);
    const [reply, confirmed] = await this.#send(send, input.signal);
    return { reply, confirmed: Number(confirmed) };
  }

  call(command: Command, { signal, reads }: CallOptions = {}): Promise<Reply> {
    return this.#send((connection) => connection.send(command), signal, reads);
  }

  subscribe(channel: string, subscriber: Subscriber): () => void {
    this.#closing.signal.throwIfAborted();
    const subscription = new Subscription({
      channel,
      subscriber,
      connect: this.#connect,
      timeout: this.#timeout,
    });
    this.#subscriptions.add(subscription);
    return () => {
      this.#subscriptions.delete(subscription);
      subscription.close();
    };
  }

  async close(): Promise<void> {
    if (this.#closing.signal.aborted) return;
    this.#closing.abort(new StoreClosedError());
    for (const subscription of this.#subscriptions) subscription.close();
    this.#connection?.close();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  async #send<T>(
    send: (connection: Connection) => Promise<T>,
    signal: AbortSignal | undefined,
    reads = false,
  ): Promise<T> {
    this.#closing.signal.throwIfAborted();
    const connection = this.#open ?? (await this.#opened(signal));
    if (signal?.aborted) throw this.#notSent(signal);
    const answer = send(connection);
    try {
      return await (signal ? race(answer, signal) : answer);
    } catch (error) {
      if (error instanceof CommandFailure) throw this.#toError(error, reads);
      if (reads) throw new StoreUnavailableError(this.address, "no answer in time", error);
      throw new UnknownOutcomeError(this.address, "a command was carried out", error);
    }
  }

  get #open(): Connection | undefined {
    return this.#connection?.isOpen ? this.#connection : undefined;
  }

  async #opened(signal: AbortSignal | undefined): Promise<Connection> {
    if (signal?.aborted) throw this.#notSent(signal);
    this.#connecting ??= this.#connectOnce().finally(() => {
      this.#connecting = undefined;
    });
    try {
      return await (signal ? race(this.#connecting, signal) : this.#connecting);
    } catch (error) {
      if (error instanceof CommandFailure) throw this.#toError(error, false);
      throw this.#notSent(signal);
    }
  }

  async #connectOnce(): Promise<Connection> {
    const limit = deadline(this.#timeout, noAnswer, this.#closing.signal);
    const nobody = { message: () => {}, ended: () => {} };
    try {
      const connection = await this.#connect(limit.signal, nobody);
      this.#connection = connection;
      if (this.#closing.signal.aborted) connection.close();
      return connection;
    } finally {
      limit[Symbol.dispose]();
    }
  }

  #toError(failure: CommandFailure, reads: boolean): unknown {
    const { aborted, reason } = this.#closing.signal;
    if (aborted && (reads || failure.why === "unsent")) return reason;
    if (failure.code === "READONLY") this.#leave();
    return toError(this.address, failure, reads);
  }

  /** The host's name may stand for another server by now. */
  #leave(): void {
    this.#connection?.close();
    for (const subscription of this.#subscriptions) subscription.startAnew();
  }

  #notSent(signal: AbortSignal | undefined): Error {
    return new StoreUnavailableError(
      this.address,
      "there was no connection in time",
      signal?.reason,
    );
  }
}

/** By its hash and, where the server does not know that, by its text; each time followed by `then`, at once. */
async function runOn(
  connection: Connection,
  { sha1, lua }: Script,
  { keys, args = [] }: Input,
  ...then: readonly Command[]
): Promise<readonly Reply[]> {
  const sendBy = (name: string, id: string) => {
    const run: Command = [name, id, keys.length, ...keys, ...args];
    return Promise.all([run, ...then].map((command) => connection.send(command)));
  };
  try {
    return await sendBy("EVALSHA", sha1);
  } catch (failure) {
    if (!(failure instanceof CommandFailure) || failure.code !== "NOSCRIPT") throw failure;
    return sendBy("EVAL", lua);
  }
}
