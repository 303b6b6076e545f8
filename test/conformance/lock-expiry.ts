import { describe, test } from "vitest";
import { compareFence, type Fence } from "../../core/lock/fence.ts";
import { until } from "../support/until.ts";
import { freshName, LONG, type LockSuite, SHORT } from "./lock-suite.ts";

/** What follows the expiry of a lock. */
export function describeExpiry(suite: LockSuite): void {
  const { open } = suite;

  describe("expiry", () => {
    test("fences rise across expiry, a lost record, and a new client", async ({ expect }) => {
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

    test("list shows held locks without expired ones", async ({ expect }) => {
      const client = open();
      const prefix = `${freshName()}/`;
      const names = ["c", "a", "b"].map((end) => prefix + end);
      for (const name of names) await client.lock(name, { ttl: LONG, wait: LONG });
      await client.lock(`${prefix}short`, { ttl: SHORT, wait: LONG, renew: false });
      const other = open();
      const listed = await until(async () => {
        const infos = await other.list(prefix);
        return infos.length === names.length && infos;
      });
      expect(listed.map((info) => info.name)).toEqual([...names].sort());
      expect(listed.every((info) => info.holder)).toBe(true);
    });

    test("whenFree resolves when the lock of a dead holder has expired", async () => {
      const name = freshName();
      await open().lock(name, { ttl: SHORT, wait: LONG, renew: false });
      await open().whenFree?.(name, new AbortController().signal);
    });
  });
}
