import { race } from "../../../lock/abort.ts";
import { Notifier } from "../../../lock/notifier.ts";
import { after, type Millis } from "../../../lock/time.ts";
import type { Redis } from "../client/redis.ts";

/** How long the first waiter waits for the subscription; without it, waiters read the lock from time to time. */
const PATIENCE: Millis = 1_000;

/** The wake-ups of one waiter. */
export interface Wakeup {
  /** Notifies of a turn, and of a subscription made anew: the message of a turn may be lost then. */
  readonly notifier: Notifier;

  /** Whether a release has given this waiter its turn. */
  isTurn: boolean;
}

/** Receives the wake-ups of one client's waiters on a channel of its own, from the first waiter on. */
export class WakeupSubscription {
  readonly #redis: Required<Redis>;
  readonly #channel: string;
  readonly #wakeups = new Map<string, Wakeup>();
  #subscribing: Promise<void> | undefined;
  #unsubscribe = () => {};

  constructor(redis: Required<Redis>, channel: string) {
    this.#redis = redis;
    this.#channel = channel;
  }

  /** Resolves when the channel is subscribed to, or after 1 s. */
  ready(signal: AbortSignal): Promise<void> {
    this.#subscribing ??= new Promise((resolve) => {
      const cancel = after(PATIENCE, resolve, { idle: true });
      this.#unsubscribe = this.#redis.subscribe(this.#channel, {
        ready: () => {
          cancel();
          resolve();
          for (const { notifier } of this.#wakeups.values()) notifier.notify();
        },
        message: (waiter) => this.#giveTurn(waiter),
      });
    });
    return race(this.#subscribing, signal);
  }

  /** Keeps the wake-ups of this waiter from now on, until `remove`. */
  add(waiter: string): Wakeup {
    const wakeup = { notifier: new Notifier(), isTurn: false };
    this.#wakeups.set(waiter, wakeup);
    return wakeup;
  }

  remove(waiter: string): void {
    this.#wakeups.delete(waiter);
  }

  close(): void {
    this.#unsubscribe();
  }

  #giveTurn(waiter: string): void {
    const wakeup = this.#wakeups.get(waiter);
    if (!wakeup) return;
    wakeup.isTurn = true;
    wakeup.notifier.notify();
  }
}
