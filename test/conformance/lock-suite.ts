import { afterAll, beforeAll } from "vitest";
import { hasCode } from "../../core/lock/errors.ts";
import type { Lock, LockStore } from "../../core/lock/lock.ts";
import { lockElections } from "../../core/lock/lock-election.ts";
import { retry } from "../../core/lock/retry.ts";
import type { StoreOptions } from "../../core/lock/store.ts";
import type { Wire } from "../support/breakable.ts";
import type { StoreUnderTest, WithElections } from "../support/under-test.ts";

/** A ttl that no pause of a busy machine outlasts. */
export const LONG = 20_000;

/** A ttl whose end a test can wait for, and that outlasts the answers on a busy machine. */
export const SHORT = 3_000;

/** Longer than any call of 2.5 s takes, shorter than the 10 to 20 s of a call without a bound. */
export const LATE = 8_000;

let names = 0;

export function freshName(): string {
  names += 1;
  return `lock-${process.pid}-${names}`;
}

/** The store under test, and its clients. */
export class LockSuite {
  readonly make: () => Promise<StoreUnderTest>;
  readonly #clients: LockStore[] = [];
  #store: StoreUnderTest | undefined;

  /** Call it within a `describe`. */
  constructor(make: () => Promise<StoreUnderTest>) {
    this.make = make;
    beforeAll(async () => {
      this.#store = await make();
    });
    afterAll(() => this.#store?.close());
  }

  get store(): StoreUnderTest {
    if (!this.#store) throw new Error("the store is opened before the first test, not earlier");
    return this.#store;
  }

  readonly open = (options?: StoreOptions): LockStore => {
    const client = this.store.open(options);
    this.#clients.push(client);
    return client;
  };

  readonly openElections = async (): Promise<WithElections> => {
    const own = await this.store.openWithElections?.();
    if (own) this.#clients.push(own.locks);
    const locks = own?.locks ?? this.open();
    return own ?? { locks, elections: lockElections(locks) };
  };

  readonly openOverWire = async (): Promise<{
    readonly client: LockStore;
    readonly wire: Wire;
  }> => {
    const { store: client, wire } = await this.store.openOverWire();
    this.#clients.push(client);
    return { client, wire };
  };

  /** Whether other processes can open the store: not that of one process, nor those that a binding of Workers opens. */
  readonly isOpenedByUrl = (): boolean =>
    !["memory", "durable-objects", "d1"].includes(this.open().traits.name);

  /** Tries until the store has answered: on a busy machine, an answer may take longer than the 2 s of `tryLock`. */
  readonly tryLock = (client: LockStore, name: string): Promise<Lock | undefined> =>
    retry(
      () => client.tryLock(name, { ttl: LONG }),
      (error) => (hasCode(error, "STORE_UNAVAILABLE", "UNKNOWN_OUTCOME") ? 0 : undefined),
    );

  /** Expects that the lock has no holder and no waiter: another client gets the lock before a ttl could end. */
  readonly expectFree = async (name: string): Promise<void> => {
    const lock = await this.open().lock(name, { ttl: LONG, wait: LONG / 2 });
    await lock.unlock();
  };

  readonly closeClients = async (): Promise<void> => {
    await Promise.all(this.#clients.splice(0).map((client) => client.close()));
  };
}
