import { asBigInt, asNumber, asText, type Database, list, type Row, sql } from "../database/sql.ts";
import { HIGHEST_GENERATION, noMoreGenerations } from "../lock/checks.ts";
import { checkToken, formatFence } from "../lock/fence.ts";
import type { LockInfo, LockStore, StoreTraits } from "../lock/lock.ts";
import type { Claims, Token } from "../lock/polling.ts";
import { pollingStore, type StoreOptions } from "../lock/store.ts";
import type { Millis } from "../lock/time.ts";

export interface SqlStoreOptions extends StoreOptions {
  /** Close the database together with the store. Default false: who opened it closes it. */
  readonly closeDatabase?: boolean;
}

export function sqlStore(
  database: Database,
  traits: StoreTraits,
  { closeDatabase = false, ...options }: SqlStoreOptions = {},
): LockStore {
  const claims = sqlClaims(database, traits);
  return pollingStore(
    closeDatabase ? { ...claims, close: () => database.close() } : claims,
    options,
  );
}

/**
 * Locks as rows: inserting one under the unique name takes the lock, and deleting it gives the lock back.
 *
 * Only the database's clock is consulted, so its clients may disagree about the time. The token is counted
 * while the lock's row is locked, in a row of its own that stays when the lock's row goes. Not an
 * AUTO_INCREMENT id: of two inserts that wait for each other, either may win.
 */
export function sqlClaims(database: Database, traits: StoreTraits): Claims {
  const { dialect } = database;
  const { now, shared, onConflict, proposed, reply = (number) => number } = dialect;
  return {
    traits,

    async claim({ names, owner, ttl, lockDelay }, signal) {
      const these = list(names);
      const expiresAt = sql`${now} + ${micros(ttl)}`;
      const freeAt = sql`${now} + ${micros(ttl + lockDelay)}`;
      const rows = names.map((name) => sql`(${name}, ${owner}, ${expiresAt}, ${freeAt})`);
      const take = sql`
        INSERT INTO lockstep_lock (name, owner, expires_at, free_at) VALUES ${list(rows)}
        ${onConflict("name")}
          owner = CASE WHEN free_at <= ${now} THEN ${owner} ELSE owner END,
          expires_at = CASE WHEN free_at <= ${now} THEN ${expiresAt} ELSE expires_at END,
          free_at = CASE WHEN free_at <= ${now} THEN ${freeAt} ELSE free_at END`;
      const allOrNone = sql`
        DELETE FROM lockstep_lock
        WHERE name IN (${these}) AND owner = ${owner} AND ${names.length} > (
          SELECT COUNT(*) FROM (
            SELECT name FROM lockstep_lock WHERE name IN (${these}) AND owner = ${owner}
          ) AS mine)`;
      const first = sql`s.generation * ${GENERATION} + 1`;
      const lowest = proposed("fence", first);
      const next = sql`
        CASE WHEN lockstep_fence.fence < ${lowest} THEN ${lowest} ELSE lockstep_fence.fence + 1 END`;
      const count = sql`
        INSERT INTO lockstep_fence (name, fence)
        SELECT l.name, ${reply(first)}
        FROM lockstep_lock AS l CROSS JOIN lockstep_store AS s
        WHERE l.name IN (${these}) AND l.owner = ${owner}
        ${shared}
        ${onConflict("name")} fence = ${reply(next)}`;
      const read = sql`SELECT name, fence FROM lockstep_fence WHERE name IN (${these})`;

      const asks = names.length > 1 || !dialect.reply ? [read] : [];
      const several = names.length > 1 ? [allOrNone] : [];
      const results = await database.packet([take, ...several, count, ...asks], signal);
      const [counted, answer] = results.slice(1 + several.length);
      if (!counted?.affected) return undefined;
      if (!answer) return [toToken(counted.reply)];
      const fences = new Map(answer.rows.map((row) => [asText(row.name), toToken(row.fence)]));
      return names.map((name) => fences.get(name) as Token);
    },

    async renew(names, owner, ttl, signal) {
      const later = sql`
        CASE WHEN ${now} + ${micros(ttl)} > expires_at
             THEN ${now} + ${micros(ttl)} - expires_at ELSE 0 END`;
      // free_at first: it still needs the old expires_at, and MySQL assigns from left to right.
      const renew = sql`
        UPDATE lockstep_lock
        SET free_at = free_at + ${later}, expires_at = expires_at + ${later}
        WHERE name IN (${list(names)}) AND owner = ${owner} AND expires_at > ${now}`;
      const [result] = await database.packet([renew], signal);
      return result?.affected === names.length;
    },

    async drop(names, owner, signal) {
      const drop = sql`
        DELETE FROM lockstep_lock
        WHERE name IN (${list(names)}) AND owner = ${owner} AND expires_at > ${now}`;
      const [result] = await database.packet([drop], signal);
      return result?.affected === names.length;
    },

    async freeIn(names, signal) {
      const [row] = await database.read(
        sql`SELECT MAX(free_at) - ${now} AS free_in FROM lockstep_lock WHERE name IN (${list(names)})`,
        signal,
      );
      return row?.free_in == null ? 0 : toMillis(row.free_in);
    },

    async inspect(name) {
      const [row] = await database.read(sql`
        SELECT f.fence, l.owner, l.expires_at - ${now} AS expires_in
        FROM lockstep_fence AS f
        LEFT JOIN lockstep_lock AS l ON l.name = f.name AND l.expires_at > ${now}
        WHERE f.name = ${name}`);
      return toInfo(name, row ?? {});
    },

    async list(prefix) {
      const rows = await database.read(sql`
        SELECT l.name, f.fence, l.owner, l.expires_at - ${now} AS expires_in
        FROM lockstep_lock AS l JOIN lockstep_fence AS f ON f.name = l.name
        WHERE l.expires_at > ${now} AND l.name >= ${prefix}
          AND SUBSTR(l.name, 1, LENGTH(${prefix})) = ${prefix}
        ORDER BY l.name`);
      return rows.map((row) => toInfo(asText(row.name), row));
    },

    async raiseGeneration(least) {
      const raise = sql`
        UPDATE lockstep_store
        SET generation = CASE WHEN generation < ${least} THEN ${least} ELSE generation + 1 END
        WHERE generation < ${HIGHEST_GENERATION}`;
      const read = sql`SELECT generation FROM lockstep_store`;
      const [raised, answer] = await database.packet([raise, read]);
      if (raised?.affected !== 1) throw noMoreGenerations();
      return asNumber(answer?.rows[0]?.generation);
    },

    close: async () => {},
  };
}

/** A fence is stored as one number: generation * 2^40 + token. */
const GENERATION = 2n ** 40n;

function toToken(fence: unknown): Token {
  const number = asBigInt(fence);
  const [generation, token] = [Number(number / GENERATION), number % GENERATION];
  checkToken(generation, token);
  return { generation, token };
}

function toInfo(name: string, { owner, expires_in, fence }: Row): LockInfo {
  const held = owner != null;
  const last = fence == null ? undefined : toToken(fence);
  return {
    name,
    holder: held ? asText(owner) : undefined,
    expiresIn: held ? toMillis(expires_in) : undefined,
    fence: last && formatFence(last.generation, last.token),
    waiters: 0,
  };
}

/** Databases count in whole microseconds here. */
function micros(span: Millis): number {
  return Math.round(span * 1_000);
}

function toMillis(span: unknown): Millis {
  return Math.max(0, asNumber(span) / 1_000);
}
