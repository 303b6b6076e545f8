import { deadline, noAnswer, race, sleep } from "../../../lock/abort.ts";
import {
  StoreClosedError,
  StoreUnavailableError,
  UnknownOutcomeError,
} from "../../../lock/errors.ts";
import { KeyedBatcher } from "../../../lock/keyed-batcher.ts";
import { backoff } from "../../../lock/retry.ts";
import {
  elapsedSince,
  type Instant,
  instant,
  LONGEST_CALL,
  type Millis,
} from "../../../lock/time.ts";
import type { Connect, RedisConnection, Route } from "./connection.ts";
import { CommandFailure, toError } from "./failure.ts";
import type {
  Command,
  CommandOptions,
  Redis,
  Replicas,
  Reply,
  Script,
  ScriptInput,
  Subscriber,
} from "./redis.ts";
import { runScript } from "./run-script.ts";
import { Subscriptions } from "./subscriptions.ts";

/** A connection that was silent for so long is checked before its next use: it may have been cut silently. */
const IDLE: Millis = 5_000;

/** The longest wait for that check. */
const CHECK: Millis = 500;

/** A connection that is silent for so long after a command is abandoned when the caller gives up. */
const SILENCE: Millis = 50;

/** A Redis client over any kind of connection: one for commands, and one for subscriptions. */
export function redisOver(route: Route, timeout: Millis): Required<Redis> {
  return new Client(route, timeout);
}

class Client implements Required<Redis> {
  readonly address: string;
  readonly #timeout: Millis;
  readonly #route: Route;
  readonly #closing = new AbortController();
  readonly #subscriptions: Subscriptions;
  readonly #abandoned = new Set<RedisConnection>();
  readonly #waits = new WeakMap<RedisConnection, Waits>();
  #connection: RedisConnection | undefined;
  #connecting: Promise<RedisConnection> | undefined;
  #checking: Promise<void> | undefined;

  /** The last failure of the connection that is being made. */
  #failure: CommandFailure | undefined;

  constructor(route: Route, timeout: Millis) {
    this.address = route.address;
    this.#timeout = timeout;
    this.#route = route;
    this.#subscriptions = new Subscriptions(route.connect, timeout);
  }

  get connection(): unknown {
    return this.#connection;
  }

  run(script: Script, input: ScriptInput): Promise<Reply> {
    const send = (connection: RedisConnection) =>
      runScript((command) => connection.send(command), script, input);
    return this.#send(send, input.signal, script);
  }

  async runOnReplicas(script: Script, input: ScriptInput, { count, span }: Replicas) {
    // A connection that is silent for longer than the timeout is closed.
    const wait: Command = ["WAIT", count, Math.ceil(Math.min(span, this.#timeout / 2))];
    const send = async (connection: RedisConnection) => {
      let confirmed: Promise<number> | undefined;
      const sendBoth = (command: Command) => {
        const reply = connection.send(command);
        // After the script. Without an answer to it, the script has been executed all the same.
        confirmed = this.#waitsOf(connection).add(wait.join(" "), wait);
        return reply;
      };
      const reply = await runScript(sendBoth, script, input);
      return { reply, confirmed: (await confirmed) ?? 0 };
    };
    return await this.#send(send, input.signal, script);
  }

  call(command: Command, { signal, reads = false }: CommandOptions = {}): Promise<Reply> {
    return this.#send((connection) => connection.send(command), signal, { reads });
  }

  subscribe(channel: string, subscriber: Subscriber): () => void {
    this.#closing.signal.throwIfAborted();
    return this.#subscriptions.add(channel, subscriber);
  }

  async close(): Promise<void> {
    if (this.#closing.signal.aborted) return;
    this.#closing.abort(new StoreClosedError());
    this.#subscriptions.close();
    this.#connection?.close();
    for (const connection of this.#abandoned) connection.close();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  #waitsOf(connection: RedisConnection): Waits {
    const waits = this.#waits.get(connection) ?? waitsOver(connection);
    this.#waits.set(connection, waits);
    return waits;
  }

  /** Sends a command again only when a server has answered that it was not executed. */
  async #send<T>(
    send: (connection: RedisConnection) => Promise<T>,
    signal: AbortSignal | undefined,
    what: Sent,
  ): Promise<T> {
    if (what.reads && !signal) {
      using limit = deadline(Math.max(LONGEST_CALL, this.#timeout), noAnswer);
      return await this.#send(send, limit.signal, what);
    }
    const startedAt = instant();
    let detour: Connect | undefined;
    for (let attempt = 0; ; attempt += 1) {
      this.#closing.signal.throwIfAborted();
      const own = detour && (await this.#orNotSent(this.#dial(detour, signal), signal));
      const connection =
        own ?? this.#fresh ?? (await this.#checked(signal)) ?? (await this.#opened(signal));
      let sentAt: Instant | undefined;
      try {
        if (signal?.aborted) throw this.#notSent(signal);
        sentAt = instant();
        const answer = send(connection);
        return await (signal ? race(answer, signal) : answer);
      } catch (error) {
        if (!(error instanceof CommandFailure)) {
          throw sentAt ? this.#unanswered(connection, sentAt, what, error) : error;
        }
        const redirection = this.#route.redirect?.(error);
        const isOver = signal?.aborted || elapsedSince(startedAt) >= this.#timeout;
        if (redirection && isOver && error.code === "MOVED") {
          // A moment later, the new node would have answered.
          throw new StoreUnavailableError(this.address, error.message, error);
        }
        if (!redirection || isOver) throw this.#toError(error, what);
        if (redirection.hasMoved) this.#leave(connection);
        detour = redirection.connect;
      } finally {
        if (own) this.#abandon(own);
      }
      if (attempt > 0) await this.#orNotSent(sleep(backoff(attempt), signal), signal);
    }
  }

  /** Returns the error for a caller that has given up. A connection that has been silent since then may be dead. */
  #unanswered(connection: RedisConnection, sentAt: Instant, what: Sent, reason: unknown): Error {
    const silence = elapsedSince(sentAt);
    if (silence > SILENCE && elapsedSince(connection.heardAt) >= silence) this.#abandon(connection);
    return what.reads
      ? new StoreUnavailableError(this.address, "no answer in time", reason)
      : new UnknownOutcomeError(this.address, "a command was executed", reason);
  }

  get #open(): RedisConnection | undefined {
    return this.#connection?.isOpen ? this.#connection : undefined;
  }

  /** The open connection, unless it is idle. */
  get #fresh(): RedisConnection | undefined {
    const open = this.#open;
    return open && elapsedSince(open.heardAt) < IDLE ? open : undefined;
  }

  /** Returns the open connection, unless it is dead. */
  async #checked(signal: AbortSignal | undefined): Promise<RedisConnection | undefined> {
    const connection = this.#open;
    if (connection === undefined) return undefined;
    this.#checking ??= this.#check(connection).finally(() => {
      this.#checking = undefined;
    });
    try {
      await (signal ? race(this.#checking, signal) : this.#checking);
    } catch {
      throw this.#notSent(signal);
    }
    this.#closing.signal.throwIfAborted();
    return this.#open;
  }

  /** Abandons the connection if the server does not answer over it. An error is an answer. */
  async #check(connection: RedisConnection): Promise<void> {
    const limit = deadline(CHECK, noAnswer);
    try {
      await race(connection.send(["PING"]), limit.signal);
    } catch (error) {
      if (!(error instanceof CommandFailure)) this.#abandon(connection);
    } finally {
      limit[Symbol.dispose]();
    }
  }

  /** Begins nothing more over it, and closes it after its last answer, or after a timeout of silence. */
  #abandon(connection: RedisConnection): void {
    if (this.#connection === connection) this.#connection = undefined;
    if (this.#abandoned.has(connection)) return;
    this.#abandoned.add(connection);
    void this.#closeAfterAnswers(connection);
  }

  async #closeAfterAnswers(connection: RedisConnection): Promise<void> {
    const waits = this.#waits.get(connection);
    try {
      do await connection.send(["PING"]);
      while (waits && !waits.isIdle);
    } catch {
      // The connection has ended, or the user may not send a PING: an error is an answer, too.
    }
    this.#abandoned.delete(connection);
    connection.close();
  }

  #opened(signal: AbortSignal | undefined): Promise<RedisConnection> {
    if (signal?.aborted) throw this.#notSent(signal);
    this.#connecting ??= this.#connectOnce().finally(() => {
      this.#connecting = undefined;
    });
    return this.#orNotSent(this.#connecting, signal);
  }

  async #connectOnce(): Promise<RedisConnection> {
    this.#failure = undefined;
    const connection = await this.#dial(this.#route.connect);
    this.#connection = connection;
    return connection;
  }

  async #dial(connect: Connect, signal?: AbortSignal): Promise<RedisConnection> {
    using limit = deadline(this.#timeout, noAnswer, this.#closing.signal, signal);
    const failed = (failure: CommandFailure) => {
      this.#failure = failure;
    };
    const connection = await connect(limit.signal, { message: () => {}, ended: () => {}, failed });
    if (this.#closing.signal.aborted || signal?.aborted) connection.close();
    return connection;
  }

  /** Waits for what comes before a command is sent. */
  async #orNotSent<T>(promise: Promise<T>, signal: AbortSignal | undefined): Promise<T> {
    try {
      return await (signal ? race(promise, signal) : promise);
    } catch (error) {
      if (error instanceof CommandFailure) throw this.#toError(error, { reads: true });
      throw this.#notSent(signal);
    }
  }

  #toError(failure: CommandFailure, what: Sent): unknown {
    const { aborted, reason } = this.#closing.signal;
    if (aborted && (what.reads || failure.kind === "unsent")) return reason;
    if (failure.code === "READONLY") this.#reconnect();
    return toError(this.address, failure, what);
  }

  /** Closes all connections: the host's name may mean another server by now. */
  #reconnect(): void {
    this.#connection?.close();
    this.#subscriptions.reconnect();
  }

  /** Finds the server anew, unless another command has done so. Answers that are due still come. */
  #leave(connection: RedisConnection): void {
    if (this.#connection !== connection) return;
    this.#abandon(connection);
    this.#subscriptions.reconnect();
  }

  #notSent(signal: AbortSignal | undefined): Error {
    const why = this.#failure ? `: ${this.#failure.message}` : "";
    return new StoreUnavailableError(this.address, `no connection in time${why}`, signal?.reason);
  }
}

/** A script, or a command. */
type Sent = Pick<Script, "reads"> & Partial<Pick<Script, "sha1">>;

/** The WAITs of one connection. */
type Waits = KeyedBatcher<Command, number>;

/**
 * Sends at most one WAIT of each kind at a time, since the connection waits with it. A WAIT counts for all writes that were
 * sent before it: those that are sent during one share the next one.
 */
function waitsOver(connection: RedisConnection): Waits {
  return new KeyedBatcher(Number.MAX_SAFE_INTEGER, async (group) => {
    const [wait] = group as readonly [Command, ...Command[]];
    const confirmed = await connection.send(wait).catch(() => undefined);
    return group.map(() => Number(confirmed ?? 0));
  });
}
