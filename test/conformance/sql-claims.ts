import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { claimFence } from "../../core/database/claim.ts";
import type { Database } from "../../core/database/sql.ts";
import type { Claims } from "../../core/lock/claims.ts";
import { issueFence } from "../../core/lock/fence.ts";
import { sqlClaims } from "../../core/stores/sql/locks.ts";
import { until } from "../support/until.ts";
import { describeClaims } from "./claims.ts";

/** A database with the tables. */
export interface SqlUnderTest {
  readonly database: Database;
  close(): Promise<void>;
}

const { signal } = new AbortController();

/** Tests the statements of a SQL lock in any order of delivery. */
export function describeSqlClaims(name: string, openIt: () => Promise<SqlUnderTest>): void {
  describeClaims(name, async () => {
    const { database, close } = await openIt();
    return { ...sqlClaims(database), close };
  });

  describe(`rows of locks on ${name}`, () => {
    let under: SqlUnderTest;
    let claims: Claims;

    beforeAll(async () => {
      under = await openIt();
      claims = sqlClaims(under.database);
    });

    afterAll(() => under.close());

    const claim = (lock: string, owner: string, ttl: number, lockDelay = 0) =>
      claims.claim({ names: [lock], owner, ttl, lockDelay }, signal);
    const expiresIn = async (lock: string) => (await claims.inspect(lock)).expiresIn ?? 0;
    const expired = (lock: string) => until(async () => (await expiresIn(lock)) === 0);

    test("a claim after a late claim of the same owner holds for its own ttl", async () => {
      expect(await claim("late", "a", 5_000)).toBeDefined();
      expect(await claim("late", "a", 60_000)).toBeDefined();
      expect(await expiresIn("late")).toBeGreaterThan(30_000);
      expect(await claim("late", "a", 5_000)).toBeDefined();
      expect(await expiresIn("late")).toBeGreaterThan(30_000);
      expect(await claim("late", "b", 5_000)).toBeUndefined();
    });

    test("a claim after an expired claim of the same owner holds, also within the lock delay", async () => {
      await claim("delayed", "a", 100, 60_000);
      await expired("delayed");
      expect(await claim("delayed", "b", 5_000)).toBeUndefined();
      expect(await claims.freeIn(["delayed"], signal)).toBeGreaterThan(30_000);
      expect(await claim("delayed", "a", 60_000, 60_000)).toBeDefined();
      expect(await expiresIn("delayed")).toBeGreaterThan(30_000);
    });

    test("a higher generation outranks any token of a lower one", async () => {
      const { database } = under;
      const claimed = (generation: number, token: bigint) =>
        database.transaction(async (tx) => {
          await claimFence(database, tx, issueFence("resource", generation, token, "a"));
          await tx.commit([]);
        });
      await claimed(1, 900n);
      await claimed(2, 1n);
      await expect(claimed(1, 901n)).rejects.toMatchObject({ code: "FENCED_OUT" });
      await claimed(2, 1n);
    });

    test("a fence that no lock has issued claims nothing", async () => {
      const { database } = under;
      const forged = { ...issueFence("forged", 0, 1n, "a") };
      const claiming = database.transaction((tx) => claimFence(database, tx, forged));
      await expect(claiming).rejects.toMatchObject({ code: "FENCE_INVALID" });
    });
  });
}
