import { describe, expect, test } from "vitest";
import { compareFence } from "../../core/lock/fence.ts";
import type { LockStore } from "../../core/lock/lock.ts";
import { until } from "../support/until.ts";

/** A ttl that no pause of a busy machine outlasts. */
const LONG = 20_000;

/** Servers of one test, which restart without their data, and stores on them. */
export interface ForgetfulServers extends AsyncDisposable {
  locks(): LockStore;
  restart(): Promise<void>;
}

/**
 * The guarantees of servers without persistence after a restart. The other stores guarantee only what is on a disk: after
 * its loss (a table emptied, a data folder replaced) they need `raise-generation --at-least`, as the suite of all stores
 * shows with an empty store.
 */
export function describeEmptyRestart(name: string, start: () => Promise<ForgetfulServers>): void {
  describe.concurrent(`a restart of ${name} without its data`, () => {
    const take = async (locks: LockStore) => {
      const lock = await locks.lock("a", { ttl: LONG, wait: LONG });
      await lock.unlock();
      return lock.fence;
    };

    test("issues no fence below an earlier one", async () => {
      await using servers = await start();
      const first = await take(servers.locks());
      await servers.restart();
      expect(compareFence(first, await take(servers.locks()))).not.toBe(1);
    });

    test("gets the generation back from each client that has seen it", async () => {
      await using servers = await start();
      const [taking, looking, holding] = [servers.locks(), servers.locks(), servers.locks()];
      expect(await servers.locks().raiseGeneration(3)).toBe(3);
      expect((await take(taking)).generation).toBe(3);
      await looking.inspect("a");

      await servers.restart();
      expect((await take(taking)).generation).toBe(3);
      expect((await take(servers.locks())).generation).toBe(3);

      await servers.restart();
      expect((await take(looking)).generation).toBe(3);

      // A client whose lock is lost.
      const lost = await holding.lock("b", { ttl: 6_000, wait: LONG });
      await servers.restart();
      await until(() => lost.signal.aborted);
      expect((await take(servers.locks())).generation).toBe(3);

      await servers.restart();
      expect(await looking.raiseGeneration()).toBe(4);
    });
  });
}
