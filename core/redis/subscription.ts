import { deadline, follow, noAnswer, race, sleep } from "../lock/abort.ts";
import type { Millis } from "../lock/time.ts";
import type { Connect, Connection } from "./connection.ts";
import type { Subscriber } from "./redis.ts";

/** How often the server is asked whether it is there: of a connection that was cut silently, nobody is told. */
const PING_EVERY: Millis = 10_000;

/** How long to wait before connecting anew: from 50 ms, twice as long each time, up to 1 s. */
function pause(attempt: number): Millis {
  return Math.min(50 * 2 ** attempt, 1_000) * (0.5 + Math.random() / 2);
}

export interface Subscription {
  readonly channel: string;
  readonly subscriber: Subscriber;
  readonly connect: Connect;

  /** For a connection to stand. */
  readonly timeout: Millis;
}

/** Keeps a subscription up, over one connection after another, until the signal aborts. */
export async function keepUp(subscription: Subscription, closing: AbortSignal): Promise<void> {
  for (let attempt = 0; !closing.aborted; attempt += 1) {
    if (await stand(subscription, closing)) attempt = 0;
    await sleep(pause(attempt), closing).catch(() => {});
  }
}

/** One connection, to its end. Resolves to whether the subscription stood. */
async function stand(
  { channel, subscriber, connect, timeout }: Subscription,
  closing: AbortSignal,
): Promise<boolean> {
  const ending = new AbortController();
  const over = follow(closing, ending.signal);
  const limit = deadline(timeout, noAnswer, over.signal);
  let connection: Connection | undefined;
  let stands = false;
  try {
    connection = await connect(limit.signal, {
      message: (_, text) => subscriber.message(text),
      ended: () => ending.abort(),
    });
    await race(connection.send(["SUBSCRIBE", channel]), limit.signal);
    stands = true;
    subscriber.ready();
    limit[Symbol.dispose]();
    for (;;) {
      await sleep(PING_EVERY, over.signal);
      await race(connection.send(["PING"]), over.signal);
    }
  } catch {
    // It has ended or was closed, or could not be made.
    return stands;
  } finally {
    limit[Symbol.dispose]();
    over[Symbol.dispose]();
    connection?.close();
  }
}
