import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { Claims } from "../../core/lock/claims.ts";
import { until } from "../support/until.ts";

const { signal } = new AbortController();

/** The writes of a lock in orders of delivery that no client here sends. */
export function describeClaims(name: string, open: () => Promise<Claims>): void {
  describe(`claims on ${name}`, () => {
    let claims: Claims;

    beforeAll(async () => {
      claims = await open();
    });

    afterAll(() => claims.close());

    const claim = (lock: string, owner: string, ttl: number) =>
      claims.claim({ names: [lock], owner, ttl, lockDelay: 0 }, signal);
    const expired = (lock: string) =>
      until(async () => (await claims.inspect(lock)).holder === undefined);

    test("an owner neither renews nor drops the lock of another one", async () => {
      await claim("theirs", "a", 30_000);
      expect(await claims.renew(["theirs"], "b", 600_000, signal)).toBe(false);
      expect(await claims.drop(["theirs"], "b", signal)).toBe(false);
      const { holder, expiresIn } = await claims.inspect("theirs");
      expect(holder).toBe("a");
      expect(expiresIn).toBeLessThanOrEqual(30_000);
    });

    test("a late renewal or release does not affect an expired lock", async () => {
      await claim("expired", "a", 50);
      await expired("expired");
      expect(await claims.renew(["expired"], "a", 60_000, signal)).toBe(false);
      expect((await claims.inspect("expired")).holder).toBeUndefined();
      expect(await claims.drop(["expired"], "a", signal)).toBe(false);
      expect(await claim("expired", "b", 30_000)).toBeDefined();
      expect(await claims.renew(["expired"], "a", 60_000, signal)).toBe(false);
      expect(await claims.drop(["expired"], "a", signal)).toBe(false);
      expect((await claims.inspect("expired")).holder).toBe("b");
    });

    test("a renewal replaces the owner's text, and a repetition renews under the new text", async () => {
      const id = "web-1:47/0b5c2f4e-9d5f-4d0c-8f43-0d7f4f8f5a11";
      const [before, after] = [`${id} {}`, `${id} {"value":"new"}`];
      await claim("told", before, 30_000);
      for (const owner of [before, before, after]) {
        expect(await claims.renew(["told"], owner, 60_000, signal, after)).toBe(true);
        expect((await claims.inspect("told")).holder).toBe(after);
      }
      expect(await claims.renew(["told"], before, 60_000, signal)).toBe(false);
      expect(await claims.renew(["told"], "b", 60_000, signal, "c")).toBe(false);
      expect(await claims.drop(["told"], before, signal)).toBe(false);
      expect(await claims.drop(["told"], after, signal)).toBe(true);
    });

    test("several locks are all renewed, or none", async () => {
      await claim("one of two", "a", 30_000);
      await claim("the other", "b", 30_000);
      const both = ["one of two", "the other"];
      expect(await claims.renew(both, "a", 600_000, signal)).toBe(false);
      for (const name of both) {
        expect((await claims.inspect(name)).expiresIn).toBeLessThanOrEqual(30_000);
      }
      await claims.drop(["the other"], "b", signal);
      expect(await claims.renew(both, "a", 600_000, signal)).toBe(false);
      await claim("the other", "a", 30_000);
      expect(await claims.renew(both, "a", 600_000, signal)).toBe(true);
      for (const name of both) {
        expect((await claims.inspect(name)).expiresIn).toBeGreaterThan(30_000);
      }
    });
  });
}
