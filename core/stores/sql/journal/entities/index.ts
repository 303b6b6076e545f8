import { asNumber, asText, type Database, sql } from "../../../../database/sql.ts";
import {
  type EntityClaim,
  type EntityId,
  type EntityRecords,
  type EntityView,
  entityResource,
} from "../../../../journal/entities.ts";
import { quote } from "../../../../lock/errors.ts";
import { retryUntilKnown } from "../../../../lock/retry.ts";
import type { Millis } from "../../../../lock/time.ts";
import { micros, toMillis } from "../../micros.ts";
import { readUnion } from "../union.ts";
import { commit } from "./commit.ts";
import { isClaimedBy, isOf, readAnswer, toAnswer } from "./rows.ts";
import { visit } from "./visit.ts";

/** Opens the records of entities in a SQL database. */
export function sqlEntities(database: Database): EntityRecords {
  return {
    visit: (id, what, signal) => visit(database, id, what, signal),
    commit: (claim, change, signal) => commit(database, claim, change, signal),
    renew: (claim, ttl, signal) => renew(database, claim, ttl, signal),
    release: (claim) => release(database, claim),
    read: (id, operationId, signal) => read(database, id, operationId, signal),
    waiting: (entities, limit) => waiting(database, entities, limit),
    purge: (limit) => purge(database, limit),
  };
}

async function renew(
  database: Database,
  claim: EntityClaim,
  ttl: Millis,
  signal: AbortSignal | undefined,
): Promise<boolean> {
  const { now } = database.dialect;
  const isHeld = sql`${isClaimedBy(claim)} AND held_until > 0`;
  const later = sql`${now} + ${micros(ttl)}`;
  const statements = [
    sql`
      UPDATE lockstep_entity
      SET held_until = CASE WHEN held_until < ${later} THEN ${later} ELSE held_until END
      WHERE ${isHeld}`,
    sql`SELECT 1 FROM lockstep_entity WHERE ${isHeld}`,
  ];
  const what = `${quote(entityResource(claim.id))} was renewed`;
  return retryUntilKnown(database.address, what, signal, async (limit) => {
    const [, held] = await database.batch(statements, limit, "locks");
    return held?.rows.length === 1;
  });
}

async function release(database: Database, claim: EntityClaim): Promise<void> {
  const what = `${quote(entityResource(claim.id))} was released`;
  await retryUntilKnown(database.address, what, undefined, (limit) =>
    database.batch(
      [sql`UPDATE lockstep_entity SET held_until = 0 WHERE ${isClaimedBy(claim)}`],
      limit,
    ),
  );
}

async function read(
  database: Database,
  id: EntityId,
  operationId: string | undefined,
  signal: AbortSignal | undefined,
): Promise<EntityView> {
  const { now } = database.dialect;
  const entity = sql`
    SELECT state, CASE WHEN held_until > ${now} THEN held_until - ${now} ELSE 0 END AS free_in
    FROM lockstep_entity WHERE ${isOf(id)}`;
  const more = operationId === undefined ? [] : [readAnswer(id, operationId)];
  const what = `${quote(entityResource(id))} was read`;
  return retryUntilKnown(database.address, what, signal, async (limit) => {
    const [rows, answers] = await database.batch([entity, ...more], limit, "locks");
    const [row] = rows?.rows ?? [];
    return {
      state: row?.state == null ? undefined : asText(row.state),
      answer: toAnswer(answers?.rows ?? []),
      freeIn: row ? toMillis(row.free_in) : 0,
    };
  });
}

async function waiting(
  database: Database,
  entities: readonly string[],
  limit: number,
): Promise<readonly EntityId[]> {
  if (entities.length === 0) return [];
  const { now } = database.dialect;
  const rows = await readUnion(
    database,
    entities.map(
      (entity) => sql`
        SELECT entity, entity_key, waits_since FROM lockstep_entity
        WHERE entity = ${entity} AND waits_since > 0 AND held_until <= ${now}
        ORDER BY waits_since LIMIT ${limit}`,
    ),
  );
  const longestFirst = rows.toSorted((a, b) => asNumber(a.waits_since) - asNumber(b.waits_since));
  return longestFirst
    .slice(0, limit)
    .map((row) => ({ entity: asText(row.entity), key: asText(row.entity_key) }));
}

function purge(database: Database, limit: number): Promise<number> {
  const { now, forUpdate } = database.dialect;
  const find = sql`
    SELECT entity, entity_key, operation_id FROM lockstep_answer
    WHERE expires_at <= ${now} ORDER BY expires_at LIMIT ${Math.min(limit, MOST_PURGED)} ${forUpdate}`;
  return retryUntilKnown(database.address, "answers were purged", undefined, (given) =>
    database.transaction(async (tx) => {
      const [found] = await tx.batch([find]);
      const rows = found?.rows ?? [];
      if (rows.length === 0) return 0;
      await tx.commit(
        rows.map(
          (row) => sql`
            DELETE FROM lockstep_answer
            WHERE entity = ${asText(row.entity)} AND entity_key = ${asText(row.entity_key)}
              AND operation_id = ${asText(row.operation_id)}`,
        ),
      );
      return rows.length;
    }, given),
  );
}

/** The most answers in one transaction. */
const MOST_PURGED = 100;
