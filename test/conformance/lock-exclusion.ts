import { readFile, writeFile } from "node:fs/promises";
import { describe, expect, test } from "vitest";
import { HIGHEST_GENERATION } from "../../core/lock/checks.ts";
import { LockTimeoutError } from "../../core/lock/errors.ts";
import { compareFence, type Fence } from "../../core/lock/fence.ts";
import type { LockStore } from "../../core/lock/lock.ts";
import { contend } from "../support/contend.ts";
import { WHOLE_MATRIX } from "../support/matrix.ts";
import { runScript } from "../support/script.ts";
import { temporaryFile } from "../support/under-test.ts";
import { freshName, LONG, type LockSuite, SHORT } from "./lock-suite.ts";

const HAND_OVERS = WHOLE_MATRIX ? 1_000 : 200;

/** One holder at a time, with rising fences. */
export function describeExclusion(suite: LockSuite): void {
  const { expectFree, open, tryLock } = suite;

  describe("exclusion", () => {
    test("a lock has one holder at a time, for other clients and for the same one", async () => {
      const [ours, theirs] = [open(), open()];
      const name = freshName();
      const lock = await ours.lock(name, { ttl: LONG, wait: LONG });
      expect(await tryLock(theirs, name)).toBeUndefined();
      expect(await tryLock(ours, name)).toBeUndefined();
      expect(await lock.unlock()).toBe("released");
      await expectFree(name);
    });

    test("20 contenders in two clients and four processes lose no update", async () => {
      const { file, remove } = await temporaryFile();
      const name = freshName();
      await writeFile(file, "0");
      const here = [open(), open()].map((client) =>
        contend(client, { name, file, contenders: 10, rounds: 5 }),
      );
      const url = suite.store.url;
      const processes = url
        ? [1, 2, 3, 4].map(() => runScript("contend", url, name, file, "5", "5"))
        : [];
      await Promise.all(here);
      for (const { ended } of processes) expect(await ended).toBe(0);
      expect(await readFile(file, "utf8")).toBe(String(100 + processes.length * 25));
      await remove();
    }, 240_000);

    test("lockAll takes all names or none, in any order of the names", async () => {
      const [ours, theirs] = [open(), open()];
      const [a, b, c] = [freshName(), freshName(), freshName()];
      const held = await theirs.lock(b, { ttl: LONG, wait: LONG });
      // Connects first: a call that does not wait has no time for that on a busy machine.
      await (await ours.lock(a, { ttl: LONG, wait: LONG })).unlock();
      await expect(ours.lockAll([c, b, a], { ttl: LONG, wait: 0 })).rejects.toThrow(
        LockTimeoutError,
      );
      await expectFree(a);
      await expectFree(c);
      await held.unlock();
      const all = await ours.lockAll([c, b, a, b], { ttl: LONG, wait: LONG });
      expect(all.names).toEqual([a, b, c].sort());
      expect([...all.fences.keys()]).toEqual(all.names);
      for (const one of [a, b, c]) expect(await tryLock(theirs, one)).toBeUndefined();
      expect(await all.unlock()).toBe("released");
      for (const one of [a, b, c]) await expectFree(one);
    });

    test("lockAll calls with opposite orders of names do not deadlock", async () => {
      const pairs = [freshName(), freshName(), freshName()];
      const rounds = async (client: LockStore, order: readonly string[]) => {
        for (let round = 0; round < 10; round += 1) {
          const all = await client.lockAll(order, { ttl: LONG, wait: LONG });
          await all.unlock();
        }
      };
      await Promise.all([
        rounds(open(), pairs),
        rounds(open(), [...pairs].reverse()),
        rounds(open(), pairs.slice(1)),
      ]);
      for (const name of pairs) await expectFree(name);
    });
  });

  describe("fences", () => {
    test(`fences rise strictly over ${HAND_OVERS} hand-overs between two clients`, async () => {
      const clients = [open(), open()] as const;
      const name = freshName();
      let last: Fence | undefined;
      for (let i = 0; i < HAND_OVERS; i += 1) {
        const lock = await clients[i % 2 === 0 ? 0 : 1].lock(name, { ttl: LONG, wait: LONG });
        if (last) expect(compareFence(last, lock.fence)).toBe(-1);
        expect(last === undefined || String(last) < String(lock.fence)).toBe(true);
        last = lock.fence;
        await lock.unlock();
      }
    }, 240_000);

    test("fences rise across expiry, a lost record, and a new client", async () => {
      const name = freshName();
      const fences: Fence[] = [];
      const take = async (options: { renew: boolean; ttl: number }) => {
        const lock = await open().lock(name, { ...options, wait: LONG });
        fences.push(lock.fence);
        return lock;
      };
      await take({ renew: false, ttl: SHORT });
      await take({ renew: true, ttl: LONG });
      await suite.store.erase(name);
      const last = await take({ renew: true, ttl: LONG });
      await last.unlock();
      await take({ renew: true, ttl: LONG });
      for (let i = 1; i < fences.length; i += 1) {
        expect(compareFence(fences[i - 1] as Fence, fences[i] as Fence)).toBe(-1);
      }
    });

    test("fences of a later generation are above all earlier fences", async () => {
      const client = open();
      const name = freshName();
      const before = await client.lock(name, { ttl: LONG, wait: LONG });
      await before.unlock();
      const generation = await client.raiseGeneration();
      expect(generation).toBeGreaterThan(before.fence.generation);
      const after = await client.lock(name, { ttl: LONG, wait: LONG });
      expect(after.fence.generation).toBe(generation);
      expect(compareFence(before.fence, after.fence)).toBe(-1);
      expect(await client.raiseGeneration(generation + 5)).toBe(generation + 5);
      const fresh = await client.lock(freshName(), { ttl: LONG, wait: LONG });
      expect(fresh.fence.generation).toBe(generation + 5);
    });

    test("fences of a store that lost its data are above the lost ones once its generation is raised", async () => {
      const name = freshName();
      const lost = await open().lock(name, { ttl: LONG, wait: LONG });
      await lost.unlock();
      const { generation } = lost.fence;
      const empty = await suite.make();
      const client = empty.open();
      expect(await client.raiseGeneration(generation + 1)).toBe(generation + 1);
      const next = await client.lock(name, { ttl: LONG, wait: LONG });
      expect(next.fence.generation).toBe(generation + 1);
      expect(compareFence(lost.fence, next.fence)).toBe(-1);
      await client.close();
      await empty.close();
    });

    test("the highest generation cannot be raised, and its fences go on rising", async () => {
      const own = await suite.make();
      const client = own.open();
      const name = freshName();
      expect(await client.raiseGeneration(HIGHEST_GENERATION)).toBe(HIGHEST_GENERATION);
      const before = await client.lock(name, { ttl: LONG, wait: LONG });
      await before.unlock();
      for (const least of [undefined, 0, HIGHEST_GENERATION]) {
        await expect(client.raiseGeneration(least)).rejects.toThrow(RangeError);
      }
      const after = await client.lock(name, { ttl: LONG, wait: LONG });
      expect(after.fence.generation).toBe(HIGHEST_GENERATION);
      expect(compareFence(before.fence, after.fence)).toBe(-1);
      await client.close();
      await own.close();
    });
  });
}
