import { deadline, noAnswer, sleep } from "./abort.ts";
import type { Millis } from "./time.ts";

/** Wake-ups between the clients of a store. A wake-up may be lost. */
export interface WakeUps {
  /** Wakes the listeners of the other clients. Neither waits nor fails. */
  notify(): void;

  /** Calls `onWake` after wake-ups of other clients, until the returned function is called. */
  listen(onWake: () => void): () => void;
}

/** The contract of a store: sends texts to all clients that listen at the moment. */
export interface WakeUpChannel {
  publish(text: string, signal: AbortSignal): Promise<unknown>;

  /** Calls `onText` with each text, and with undefined when texts may have been lost, until the returned function is called. */
  subscribe(onText: (text: string | undefined) => void): () => void;
}

/** The shortest time between two texts of a client, and between two calls of its listeners. */
const PAUSE: Millis = 20;

/** The longest attempt to send a text: a later one would come after the listeners' next look. */
const SENDING: Millis = 1_000;

/** Makes wake-ups of a channel: one subscription for all listeners, and one text for many wake-ups. */
export function wakeUpsOver(
  channel: WakeUpChannel,
  track: <T>(sending: Promise<T>) => Promise<T>,
  client: string = crypto.randomUUID(),
): WakeUps {
  const listeners = new Set<() => void>();
  let unsubscribe = () => {};
  const publish = async () => {
    using limit = deadline(SENDING, noAnswer);
    await channel.publish(client, limit.signal);
  };
  const send = coalesced(() => track(publish()));
  const wake = coalesced(async () => {
    for (const onWake of listeners) onWake();
  });
  const subscribe = () => {
    try {
      unsubscribe = channel.subscribe((sender) => {
        if (sender !== client) wake();
      });
    } catch {
      // The store is closed: no wake-up comes.
    }
  };
  return {
    notify: send,
    listen(onWake) {
      if (listeners.size === 0) subscribe();
      listeners.add(onWake);
      return () => {
        if (listeners.delete(onWake) && listeners.size === 0) unsubscribe();
      };
    },
  };
}

/**
 * Returns a function that runs `action` at once, and once more for all calls during the action and the pause after its
 * start. Ignores failures.
 */
function coalesced(action: () => Promise<void>): () => void {
  let isCalled = false;
  let isRunning = false;
  const run = async () => {
    isRunning = true;
    while (isCalled) {
      isCalled = false;
      await Promise.allSettled([action(), sleep(PAUSE)]);
    }
    isRunning = false;
  };
  return () => {
    isCalled = true;
    if (!isRunning) void run();
  };
}
