import { deadline, noAnswer, race, sleep } from "../lock/abort.ts";
import type { Millis } from "../lock/time.ts";
import type { Connect, Connection } from "./connection.ts";
import type { Subscriber } from "./redis.ts";

/** How often the server is asked whether it is there: of a connection that was cut silently, nobody is told. */
const PING_EVERY: Millis = 10_000;

/** How long to wait before connecting anew: from 50 ms, twice as long each time, up to 1 s. */
function pause(attempt: number): Millis {
  return Math.min(50 * 2 ** attempt, 1_000) * (0.5 + Math.random() / 2);
}

export interface SubscriptionOptions {
  readonly channel: string;
  readonly subscriber: Subscriber;
  readonly connect: Connect;

  /** For a connection to stand. */
  readonly timeout: Millis;
}

/** One channel, over one connection after another, until it is closed. */
export class Subscription {
  readonly #options: SubscriptionOptions;
  readonly #closing = new AbortController();
  #end = () => {};

  constructor(options: SubscriptionOptions) {
    this.#options = options;
    void this.#keepUp();
  }

  /** Over another connection. */
  startAnew(): void {
    this.#end();
  }

  close(): void {
    this.#closing.abort();
    this.#end();
  }

  async #keepUp(): Promise<void> {
    const { signal } = this.#closing;
    for (let attempt = 0; !signal.aborted; attempt += 1) {
      if (await this.#stand()) attempt = 0;
      await sleep(pause(attempt), signal).catch(() => {});
    }
  }

  /** One connection, to its end. Resolves to whether the subscription stood. */
  async #stand(): Promise<boolean> {
    const { channel, subscriber, connect, timeout } = this.#options;
    const ending = new AbortController();
    this.#end = () => ending.abort();
    const limit = deadline(timeout, noAnswer, ending.signal);
    let connection: Connection | undefined;
    let stands = false;
    try {
      connection = await connect(limit.signal, {
        message: (_, text) => subscriber.message(text),
        ended: this.#end,
      });
      await race(connection.send(["SUBSCRIBE", channel]), limit.signal);
      stands = true;
      subscriber.ready();
      for (;;) {
        await sleep(PING_EVERY, ending.signal);
        await race(connection.send(["PING"]), ending.signal);
      }
    } catch {
      // It has ended or was closed, or could not be made.
      return stands;
    } finally {
      limit[Symbol.dispose]();
      connection?.close();
    }
  }
}
