import { deadline, noAnswer, race, sleep } from "../../../lock/abort.ts";
import { type Backoff, backoff } from "../../../lock/retry.ts";
import type { Millis } from "../../../lock/time.ts";
import type { Connect, RedisConnection } from "./connection.ts";
import type { Subscriber } from "./redis.ts";

/** The time between two pings: the client does not notice a connection that was cut silently. */
const PING_EVERY: Millis = 5_000;

const RECONNECT: Backoff = { base: 50, factor: 2, max: 1_000 };

export interface SubscriptionOptions {
  readonly channel: string;
  readonly subscriber: Subscriber;
  readonly connect: Connect;

  /** How long a connection may take. */
  readonly timeout: Millis;
}

/** A subscription to one channel, over one connection after another, until it is closed. */
export class Subscription {
  readonly #options: SubscriptionOptions;
  readonly #closing = new AbortController();
  #end = () => {};

  constructor(options: SubscriptionOptions) {
    this.#options = options;
    void this.#run();
  }

  /** Replaces the connection. */
  reconnect(): void {
    this.#end();
  }

  close(): void {
    this.#closing.abort();
    this.#end();
  }

  async #run(): Promise<void> {
    const { signal } = this.#closing;
    for (let attempt = 0; !signal.aborted; attempt += 1) {
      if (await this.#subscribeOnce()) attempt = 0;
      await sleep(backoff(attempt, RECONNECT), signal).catch(() => {});
    }
  }

  /** Uses one connection to its end. Resolves to whether the channel was subscribed to. */
  async #subscribeOnce(): Promise<boolean> {
    const { channel, subscriber, connect, timeout } = this.#options;
    const ending = new AbortController();
    this.#end = () => ending.abort();
    const limit = deadline(timeout, noAnswer, ending.signal);
    let connection: RedisConnection | undefined;
    let isSubscribed = false;
    try {
      connection = await connect(limit.signal, {
        message: (_, text) => subscriber.message(text),
        ended: this.#end,
      });
      // ioredis 5 recognises the command in lower case only.
      await race(connection.send(["subscribe", channel]), limit.signal);
      isSubscribed = true;
      subscriber.ready();
      for (;;) {
        await sleep(PING_EVERY, ending.signal);
        await race(connection.send(["PING"]), ending.signal);
      }
    } catch {
      // The connection has ended, was closed, or could not be made.
      return isSubscribed;
    } finally {
      limit[Symbol.dispose]();
      connection?.close();
    }
  }
}
