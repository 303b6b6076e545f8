import { race } from "../../lock/abort.ts";
import { after, type Millis } from "../../lock/time.ts";
import type { Redis } from "../../redis/redis.ts";

/** What a waiter is told: that its turn has come, or that it may have missed that. */
export type Call = "your turn" | "look again";

/** For how long the first waiter waits until calls can be heard; without them one looks from time to time. */
const PATIENCE: Millis = 1_000;

/** Hears who is called, on a channel that is this client's own. It listens from the first waiter on. */
export class Ear {
  readonly #redis: Redis;
  readonly #channel: string;
  readonly #bells = new Map<string, Bell>();
  #listening: Promise<void> | undefined;
  #stop = () => {};

  constructor(redis: Redis, channel: string) {
    this.#redis = redis;
    this.#channel = channel;
  }

  listens(signal: AbortSignal): Promise<void> {
    this.#listening ??= new Promise((resolve) => {
      const cancel = after(PATIENCE, resolve, { idle: true });
      this.#stop = this.#redis.subscribe(this.#channel, {
        ready: () => {
          cancel();
          resolve();
          for (const bell of this.#bells.values()) bell.ring("look again");
        },
        message: (waiter) => this.#bells.get(waiter)?.ring("your turn"),
      });
    });
    return race(this.#listening, signal);
  }

  /** Keeps what is called for this waiter from now on, until it is forgotten. */
  bellOf(waiter: string): Bell {
    const bell = new Bell();
    this.#bells.set(waiter, bell);
    return bell;
  }

  forget(waiter: string): void {
    this.#bells.delete(waiter);
  }

  close(): void {
    this.#stop();
  }
}

/** Calls for one waiter, kept until it listens. */
export class Bell {
  #call: Call | undefined;
  #hear = () => {};

  ring(call: Call): void {
    if (this.#call !== "your turn") this.#call = call;
    this.#hear();
  }

  /** Resolves to the call, or to undefined after `span`. Rejects with the signal's reason if it aborts first. */
  async heard(span: Millis, signal: AbortSignal): Promise<Call | undefined> {
    if (this.#call === undefined) {
      const heard = Promise.withResolvers<void>();
      this.#hear = heard.resolve;
      const cancel = after(span, heard.resolve);
      await race(heard.promise, signal).finally(cancel);
    }
    const call = this.#call;
    this.#call = undefined;
    return call;
  }
}
