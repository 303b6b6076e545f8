import {
  asBigInt,
  asNumber,
  asText,
  type Database,
  exact,
  list,
  type Notices,
  type Row,
  type Sql,
  sql,
} from "../../database/sql.ts";
import { HIGHEST_GENERATION, noMoreGenerations } from "../../lock/checks.ts";
import type { Claims, Token } from "../../lock/claims.ts";
import { isCertain, StoreUnavailableError } from "../../lock/errors.ts";
import { checkToken, formatFence } from "../../lock/fence.ts";
import type { LockRecord } from "../../lock/holder.ts";
import type { LockStore } from "../../lock/lock.ts";
import { pollingStore, type StoreOptions } from "../../lock/store.ts";
import { micros, toMillis } from "./micros.ts";

export interface SqlLocksOptions extends StoreOptions {
  /** Whether `close` closes the database as well. Default false: the caller that opened the database closes it. */
  readonly closeDatabase?: boolean;
}

export function sqlLocks(
  database: Database,
  { closeDatabase = false, ...options }: SqlLocksOptions = {},
): LockStore {
  const claims = sqlClaims(database);
  return pollingStore(
    closeDatabase ? { ...claims, close: () => database.close() } : claims,
    options,
  );
}

/**
 * Locks as rows: the INSERT of a unique name takes the lock, and the DELETE releases it.
 *
 * Expiry goes by the database's clock alone, so the clients' clocks may differ. The token is counted while the lock's
 * row is locked, in a row that outlives the lock's row. Not an AUTO_INCREMENT id: of two inserts that wait for each
 * other, either may win.
 */
export function sqlClaims(database: Database): Claims {
  const { dialect, notices } = database;
  const {
    now,
    forShare,
    forUpdate,
    hasFunctions,
    onConflict,
    proposed,
    returning = (number) => number,
  } = dialect;
  return {
    traits: {
      name: dialect.name,
      fair: false,
      watches: false,
      serverClock: true,
      shared: true,
      lockDelay: true,
      minTtl: 100,
    },

    async claim({ names, owner, ttl, lockDelay }, signal) {
      const [name = "", ...others] = names;
      if (hasFunctions && others.length === 0) {
        const take = sql`lockstep_take(${name}, ${owner}, ${micros(ttl)}, ${micros(ttl + lockDelay)})`;
        const fence = await select(database, take, signal);
        return fence == null ? undefined : [toToken(fence)];
      }
      const these = list(names);
      const expiresAt = sql`${now} + ${micros(ttl)}`;
      const freeAt = sql`${now} + ${micros(ttl + lockDelay)}`;
      const rows = names.map((name) => sql`(${name}, ${owner}, ${expiresAt}, ${freeAt})`);
      // An owner may hold the row already: the network may deliver a withdrawn claim late.
      const isOurs = sql`(lockstep_lock.free_at <= ${now} OR lockstep_lock.owner = ${owner})`;
      const take = sql`
        INSERT INTO lockstep_lock (name, owner, expires_at, free_at) VALUES ${list(rows)}
        ${onConflict("name")}
          owner = CASE WHEN ${isOurs} THEN ${owner} ELSE lockstep_lock.owner END,
          expires_at = CASE WHEN ${isOurs} AND lockstep_lock.expires_at < ${expiresAt}
            THEN ${expiresAt} ELSE lockstep_lock.expires_at END,
          free_at = CASE WHEN ${isOurs} AND lockstep_lock.free_at < ${freeAt}
            THEN ${freeAt} ELSE lockstep_lock.free_at END`;
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
        SELECT l.name, ${returning(first)}
        FROM lockstep_lock AS l CROSS JOIN lockstep_store AS s
        WHERE l.name IN (${these}) AND l.owner = ${owner}
        ${forShare}
        ${onConflict("name")} fence = ${returning(next)}`;
      const read = sql`SELECT name, ${exact(sql`fence`)} AS fence FROM lockstep_fence WHERE name IN (${these})`;

      const reads = names.length > 1 || !dialect.returning ? [read] : [];
      const several = names.length > 1 ? [allOrNone] : [];
      const results = await database.batch([take, ...several, count, ...reads], signal, "locks");
      const [counted, answer] = results.slice(1 + several.length);
      if (!counted?.affected) return undefined;
      if (!answer) return [toToken(counted.returned)];
      const fences = new Map(answer.rows.map((row) => [asText(row.name), toToken(row.fence)]));
      return names.map((name) => fences.get(name) as Token);
    },

    async renew(names, owner, ttl, signal, next) {
      const owners = next === undefined ? [owner] : [owner, next];
      const isOurs = sql`
        name IN (${list(names)}) AND owner IN (${list(owners)}) AND expires_at > ${now}`;
      const rewrite = next === undefined ? sql`` : sql`owner = ${next},`;
      const later = sql`
        CASE WHEN ${now} + ${micros(ttl)} > expires_at
             THEN ${now} + ${micros(ttl)} - expires_at ELSE 0 END`;
      // free_at comes first: it reads the old expires_at, and MySQL assigns from left to right.
      const renew = sql`
        UPDATE lockstep_lock
        SET ${rewrite} free_at = free_at + ${later}, expires_at = expires_at + ${later}
        WHERE ${isOurs}`;
      const take = sql`SELECT name FROM lockstep_lock WHERE ${isOurs} ORDER BY name ${forUpdate}`;
      // MySQL evaluates a COUNT before the UPDATE. It merges a plain subquery into the UPDATE and refuses the result.
      const all = sql`
        ${names.length} = (
          SELECT held FROM (SELECT COUNT(*) AS held FROM lockstep_lock WHERE ${isOurs}) AS mine)`;
      const batch = names.length > 1 ? [take, sql`${renew} AND ${all}`] : [renew];
      const result = (await database.batch(batch, signal, "renewals")).at(-1);
      return result?.affected === names.length;
    },

    async drop(names, owner, signal) {
      const [name = "", ...others] = names;
      if (hasFunctions && others.length === 0) {
        const drop = sql`CAST(lockstep_drop(${name}, ${owner}) AS INTEGER)`;
        return asNumber(await select(database, drop, signal)) === 1;
      }
      const drop = sql`
        DELETE FROM lockstep_lock
        WHERE name IN (${list(names)}) AND owner = ${owner} AND expires_at > ${now}`;
      const statement = notices ? publishing(drop, notices) : drop;
      const [result] = await database.batch([statement], signal, "locks");
      return result?.affected === names.length;
    },

    async freeIn(names, signal) {
      const read = sql`
        SELECT MAX(free_at) - ${now} AS free_in FROM lockstep_lock WHERE name IN (${list(names)})`;
      const [row] = notices?.isActive(RELEASES)
        ? await markAndRead(database, names, read, signal)
        : await database.read(read, signal);
      return row?.free_in == null ? 0 : Math.max(0, toMillis(row.free_in));
    },

    ...(notices && {
      onRelease: (name, listener) => ({
        get isActive() {
          return notices.isActive(RELEASES);
        },
        stop: notices.listen(RELEASES, (released) => {
          if (released === undefined || released === name) listener();
        }),
      }),
    }),

    async inspect(name) {
      const [row] = await database.read(sql`
        SELECT ${exact(sql`f.fence`)} AS fence, l.owner, l.expires_at - ${now} AS expires_in
        FROM lockstep_fence AS f
        LEFT JOIN lockstep_lock AS l ON l.name = f.name AND l.expires_at > ${now}
        WHERE f.name = ${name}`);
      return toInfo(name, row ?? {});
    },

    async list(prefix) {
      const rows = await database.read(sql`
        SELECT l.name, ${exact(sql`f.fence`)} AS fence, l.owner, l.expires_at - ${now} AS expires_in
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
        WHERE id = 1 AND generation < ${HIGHEST_GENERATION}`;
      const read = sql`SELECT generation FROM lockstep_store`;
      const [raised, answer] = await database.batch([raise, read]);
      if (raised?.affected !== 1) throw noMoreGenerations();
      return asNumber(answer?.rows[0]?.generation);
    },

    close: async () => {},
  };
}

/** Resolves to the value of a function that changes the database. */
async function select(database: Database, call: Sql, signal: AbortSignal): Promise<Row[string]> {
  const [result] = await database.batch([sql`SELECT ${call} AS value`], signal, "locks");
  return result?.rows[0]?.value ?? null;
}

/** The channel of released locks. Its texts are their names. */
const RELEASES = "lockstep_released";

/** Makes a DELETE of locks notify the waiters of those that have waiters. */
function publishing(drop: Sql, notices: Notices): Sql {
  return sql`
    WITH released AS (${drop} RETURNING name, awaited)
    SELECT (SELECT ${notices.send(RELEASES, sql`name`)} WHERE awaited = 1) FROM released`;
}

/**
 * Marks the locks as awaited, and reads them in a second statement, which sees a release that the first one has waited for.
 * A release without a mark is not published.
 */
async function markAndRead(
  database: Database,
  names: readonly string[],
  read: Sql,
  signal: AbortSignal,
): Promise<readonly Row[]> {
  const mark = sql`
    UPDATE lockstep_lock SET awaited = 1 WHERE name IN (${list(names)}) AND awaited = 0`;
  try {
    const [, answer] = await database.batch([mark, read], signal, "locks");
    return answer?.rows ?? [];
  } catch (error) {
    if (isCertain(error)) throw error;
    throw new StoreUnavailableError(database.address, "the answer to a read was lost", error);
  }
}

/** The fence column holds generation * 2^40 + token. */
const GENERATION = 2n ** 40n;

function toToken(fence: unknown): Token {
  const number = asBigInt(fence);
  const [generation, token] = [Number(number / GENERATION), number % GENERATION];
  checkToken(generation, token);
  return { generation, token };
}

function toInfo(name: string, { owner, expires_in, fence }: Row): LockRecord {
  const held = owner != null;
  const last = fence == null ? undefined : toToken(fence);
  return {
    name,
    holder: held ? asText(owner) : undefined,
    expiresIn: held ? Math.max(0, toMillis(expires_in)) : undefined,
    fence: last && formatFence(last.generation, last.token),
    waiters: 0,
  };
}
