import {
  asNumber,
  asText,
  type Database,
  type Dialect,
  list,
  type Row,
  raw,
  type Sql,
  type SqlResult,
  sql,
  type Transaction,
} from "../../../database/sql.ts";
import { costOf, type LimitedQueue, type QueueLimits } from "../../../journal/limits.ts";
import type { WaitingRun } from "../../../journal/turn-order.ts";
import { toMillis as spanOf } from "../../../lock/duration.ts";
import { quote } from "../../../lock/errors.ts";
import { retryUntilKnown } from "../../../lock/retry.ts";
import { micros, toMillis } from "../micros.ts";

const LIMITS = sql`
  queue, concurrency, per_key, rate_runs, rate_span, key_rate_runs, key_rate_span`;

/** Sets the limits of a queue, or removes them. The use of its rates starts anew. */
export async function setLimits(
  database: Database,
  queue: string,
  { concurrency, perKey, rate, ratePerKey }: QueueLimits,
): Promise<void> {
  const { onConflict, proposed } = database.dialect;
  const limits = [concurrency, perKey, rate, ratePerKey];
  const values = {
    concurrency: sql`${concurrency ?? null}`,
    per_key: sql`${perKey ?? null}`,
    rate_runs: sql`${rate?.runs ?? null}`,
    rate_span: spanIn(rate),
    key_rate_runs: sql`${ratePerKey?.runs ?? null}`,
    key_rate_span: spanIn(ratePerKey),
  };
  const assignments = Object.entries(values)
    .map(([column, value]) => sql`${raw(column)} = ${proposed(column, value)}`)
    .reduce((all, one) => sql`${all}, ${one}`);
  const statement = limits.every((limit) => limit === undefined)
    ? sql`DELETE FROM lockstep_queue WHERE queue = ${queue}`
    : sql`
        INSERT INTO lockstep_queue (${LIMITS}, next_at)
        VALUES (${queue}, ${list(Object.values(values))}, 0)
        ${onConflict("queue")} ${assignments}, next_at = 0`;
  const forget = sql`DELETE FROM lockstep_key_rate WHERE queue = ${queue}`;
  const what = `the limits of queue ${quote(queue)} were set`;
  await retryUntilKnown(database.address, what, undefined, (limit) =>
    database.batch([statement, forget], limit),
  );
}

function spanIn(rate: QueueLimits["rate"]): Sql {
  return sql`${rate ? micros(spanOf("per", rate.per)) : null}`;
}

export async function readLimits(database: Database): Promise<ReadonlyMap<string, QueueLimits>> {
  const read = sql`SELECT ${LIMITS} FROM lockstep_queue ORDER BY queue`;
  const rows = await retryUntilKnown(database.address, "limits were read", undefined, (limit) =>
    database.read(read, limit),
  );
  return new Map(rows.map((row) => [asText(row.queue), toLimits(row)]));
}

/** Locks the limits of the queues: claims from a limited queue come one after another. */
export function lockLimits({ now, forUpdate }: Dialect, queues: readonly string[]): Sql {
  return sql`
    SELECT ${LIMITS}, next_at - ${now} AS ahead_by FROM lockstep_queue
    WHERE queue IN (${list(queues)}) ORDER BY queue ${forUpdate}`;
}

/**
 * Reads what the queues have used of their limits, under the lock on them. A run whose lease has expired counts no more.
 * Of the rates per key, reads the keys of `waiting`.
 */
export async function readUse(
  { now }: Dialect,
  tx: Transaction,
  rows: readonly Row[],
  waiting: readonly WaitingRun[],
): Promise<ReadonlyMap<string, LimitedQueue>> {
  const queues = list(rows.map((row) => asText(row.queue)));
  const keys = [...new Set(waiting.map(({ key = "" }) => key))];
  const [counted, rates] = await tx.batch([
    sql`
      SELECT queue, turn_key, COUNT(*) AS runs FROM lockstep_run
      WHERE queue IN (${queues}) AND status = 'running' AND due_at > ${now}
      GROUP BY queue, turn_key`,
    sql`
      SELECT queue, turn_key, next_at - ${now} AS ahead_by FROM lockstep_key_rate
      WHERE queue IN (${queues}) AND turn_key IN (${list(keys)})`,
  ]);
  return new Map(
    rows.map((row) => {
      const queue = asText(row.queue);
      const own = ({ rows: all = [] }: Partial<SqlResult> = {}) =>
        all.filter((one) => asText(one.queue) === queue);
      const running = own(counted).map((one): [string | undefined, number] => [
        asText(one.turn_key) || undefined,
        asNumber(one.runs),
      ]);
      const keysAheadBy = own(rates).map((one): [string, number] => [
        asText(one.turn_key),
        toMillis(one.ahead_by),
      ]);
      const use = { running: new Map(running), keysAheadBy: new Map(keysAheadBy) };
      return [queue, { ...toLimits(row), ...use, aheadBy: toMillis(row.ahead_by) }];
    }),
  );
}

/** Counts the claims of these runs against the rates of their queue and keys. */
export function countClaims(
  { now, onConflict }: Dialect,
  { rate, ratePerKey }: QueueLimits,
  runs: readonly WaitingRun[],
): readonly Sql[] {
  const [{ queue }] = runs as [WaitingRun];
  const from = (nextAt: Sql) => sql`CASE WHEN ${nextAt} < ${now} THEN ${now} ELSE ${nextAt} END`;
  const ofQueue = (cost: number) => sql`
    UPDATE lockstep_queue SET next_at = ${from(sql`next_at`)} + ${cost} WHERE queue = ${queue}`;
  const ofKey = (key: string, cost: number) => sql`
    INSERT INTO lockstep_key_rate (queue, turn_key, next_at)
    VALUES (${queue}, ${key}, ${now} + ${cost})
    ${onConflict("queue, turn_key")} next_at = ${from(sql`lockstep_key_rate.next_at`)} + ${cost}`;
  const statements = rate ? [ofQueue(micros(runs.length * costOf(rate)))] : [];
  if (ratePerKey) {
    for (const [key, { length }] of Map.groupBy(runs, (run) => run.key)) {
      if (key !== undefined) statements.push(ofKey(key, micros(length * costOf(ratePerKey))));
    }
  }
  return statements;
}

/** Deletes up to `most` rates of keys that no claim has used in advance. */
export async function purgeRates(database: Database, most: number): Promise<void> {
  const { now } = database.dialect;
  const unused = sql`next_at <= ${now}`;
  const what = "rates of keys were purged";
  await retryUntilKnown(database.address, what, undefined, async (limit) => {
    const rows = await database.read(
      sql`SELECT queue, turn_key FROM lockstep_key_rate WHERE ${unused} LIMIT ${most}`,
      limit,
    );
    const deletions = [...Map.groupBy(rows, (row) => asText(row.queue))].map(([queue, own]) => {
      const keys = list(own.map((row) => asText(row.turn_key)));
      return sql`
        DELETE FROM lockstep_key_rate
        WHERE queue = ${queue} AND turn_key IN (${keys}) AND ${unused}`;
    });
    if (deletions.length > 0) await database.batch(deletions, limit);
    return true;
  });
}

function toLimits(row: Row): QueueLimits {
  const toRate = (runs: unknown, span: unknown) =>
    runs == null ? undefined : { runs: asNumber(runs), per: toMillis(span) };
  const [concurrency, perKey] = [row.concurrency, row.per_key].map((value) =>
    value == null ? undefined : asNumber(value),
  );
  return {
    concurrency,
    perKey,
    rate: toRate(row.rate_runs, row.rate_span),
    ratePerKey: toRate(row.key_rate_runs, row.key_rate_span),
  };
}
