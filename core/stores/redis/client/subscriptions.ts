import { deadline, noAnswer, race } from "../../../lock/abort.ts";
import { Notifier } from "../../../lock/notifier.ts";
import { type Backoff, backoff } from "../../../lock/retry.ts";
import { elapsedSince, instant, type Millis } from "../../../lock/time.ts";
import type { Connect, RedisConnection } from "./connection.ts";
import { CommandFailure } from "./failure.ts";
import type { Subscriber } from "./redis.ts";

/** The time between two pings: the client does not notice a connection that was cut silently. */
const PING_EVERY: Millis = 5_000;

const RECONNECT: Backoff = { base: 50, factor: 2, max: 1_000 };

/** All subscriptions of one client, over one connection after another for as long as there are any. */
export class Subscriptions {
  readonly #connect: Connect;
  readonly #timeout: Millis;
  readonly #channels = new Map<string, Set<Subscriber>>();
  readonly #changes = new Notifier();
  #isRunning = false;
  #end = () => {};

  /** `timeout` limits each connecting, and each answer. */
  constructor(connect: Connect, timeout: Millis) {
    this.#connect = connect;
    this.#timeout = timeout;
  }

  /** Subscribes until the returned function is called. */
  add(channel: string, { ready, message }: Subscriber): () => void {
    // An object of its own: the caller may subscribe one twice.
    const subscriber = { ready, message };
    const subscribers = this.#channels.get(channel) ?? new Set();
    this.#channels.set(channel, subscribers.add(subscriber));
    this.#changes.notify();
    if (!this.#isRunning) void this.#run();
    return () => {
      subscribers.delete(subscriber);
      if (subscribers.size === 0 && this.#channels.get(channel) === subscribers) {
        this.#channels.delete(channel);
      }
      this.#changes.notify();
    };
  }

  /** Replaces the connection. */
  reconnect(): void {
    this.#end();
  }

  close(): void {
    this.#channels.clear();
    this.#changes.notify();
    this.#end();
  }

  async #run(): Promise<void> {
    this.#isRunning = true;
    for (let attempt = 0; this.#channels.size > 0; attempt += 1) {
      if (await this.#useConnection()) attempt = 0;
      await this.#pause(backoff(attempt, RECONNECT));
    }
    this.#isRunning = false;
  }

  /** Pauses, unless no channel is left. */
  async #pause(span: Millis): Promise<void> {
    const startedAt = instant();
    const left = () => span - elapsedSince(startedAt);
    while (this.#channels.size > 0 && left() > 0) await this.#changes.wait({ span: left() });
  }

  /** Uses one connection to its end. Resolves to whether a channel was subscribed to. */
  async #useConnection(): Promise<boolean> {
    const ending = new AbortController();
    this.#end = () => ending.abort();
    const subscribed = new Set<string>();
    let connection: RedisConnection | undefined;
    try {
      connection = await this.#opened(ending.signal);
      await this.#serve(connection, subscribed, ending.signal);
    } catch {
      // The connection has ended, was closed, or could not be made.
    } finally {
      connection?.close();
    }
    return subscribed.size > 0;
  }

  async #opened(ending: AbortSignal): Promise<RedisConnection> {
    using limit = deadline(this.#timeout, noAnswer, ending);
    return await this.#connect(limit.signal, {
      message: (channel, text) => {
        for (const { message } of this.#channels.get(channel) ?? []) message(text);
      },
      ended: this.#end,
    });
  }

  /** Keeps the server's list of channels like that of the subscribers, until it is empty. */
  async #serve(
    connection: RedisConnection,
    subscribed: Set<string>,
    ending: AbortSignal,
  ): Promise<void> {
    const told = new WeakSet<Subscriber>();
    const refused = new Set<string>();
    let answeredAt = instant();
    const ask = async (...command: [string, ...string[]]) => {
      using limit = deadline(this.#timeout, noAnswer, ending);
      await race(connection.send(command), limit.signal);
      answeredAt = instant();
    };
    // ioredis 5 recognises the commands in lower case only.
    const subscribe = async (channels: readonly string[]): Promise<void> => {
      try {
        await ask("subscribe", ...channels);
        for (const channel of channels) subscribed.add(channel);
      } catch (error) {
        if (!(error instanceof CommandFailure) || error.kind !== "answered") throw error;
        // The user may lack the permission for one of them.
        if (channels.length > 1) for (const channel of channels) await subscribe([channel]);
        else for (const channel of channels) refused.add(channel);
      }
    };
    while (this.#channels.size > 0) {
      const missing = [...this.#channels.keys()].filter(
        (channel) => !subscribed.has(channel) && !refused.has(channel),
      );
      const unused = [...subscribed].filter((channel) => !this.#channels.has(channel));
      if (missing.length > 0) {
        await subscribe(missing);
      } else if (unused.length > 0) {
        await ask("unsubscribe", ...unused);
        for (const channel of unused) subscribed.delete(channel);
      } else {
        const span = PING_EVERY - elapsedSince(answeredAt);
        if (span <= 0) await ask("PING");
        else await this.#changes.wait({ span, signal: ending });
      }
      if (subscribed.size === 0 && refused.size > 0) throw new Error("every channel is refused");
      this.#tell(told, subscribed);
    }
  }

  /** Tells the subscribers of the channels that are subscribed to, each once. */
  #tell(told: WeakSet<Subscriber>, subscribed: ReadonlySet<string>): void {
    for (const [channel, subscribers] of this.#channels) {
      if (!subscribed.has(channel)) continue;
      for (const subscriber of subscribers) {
        if (told.has(subscriber)) continue;
        told.add(subscriber);
        subscriber.ready();
      }
    }
  }
}
