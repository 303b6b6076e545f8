import {
  asBigInt,
  asNumber,
  asText,
  type Database,
  type Dialect,
  exact,
  type Row,
  type Sql,
  sql,
} from "../../../../database/sql.ts";
import {
  type ClaimedEntity,
  type EntityId,
  type EntityMessage,
  type EntityVisit,
  type EntityVisitResult,
  entityResource,
} from "../../../../journal/entities.ts";
import { quote } from "../../../../lock/errors.ts";
import { issueFence } from "../../../../lock/fence.ts";
import { retryUntilKnown } from "../../../../lock/retry.ts";
import type { Millis } from "../../../../lock/time.ts";
import { micros } from "../../micros.ts";
import { isOf, readAnswer, readMessages, toAnswer, toMessage } from "./rows.ts";

/**
 * Delivers the message and claims the entity in one batch. The first statement locks the entity's row, so that the
 * conditions of the later ones stay true until the end.
 *
 * The call's mark makes a repetition safe: a late request of the call that claimed the entity last claims nothing.
 */
export function visit(
  database: Database,
  id: EntityId,
  { message, ttl }: EntityVisit,
  signal: AbortSignal | undefined,
): Promise<EntityVisitResult> {
  const { dialect, address } = database;
  const mark = crypto.randomUUID();
  const operationId = message?.operationId ?? "";
  const writes = [
    lockRow(dialect, id),
    ...(message ? [deliver(dialect, id, message), noteWait(dialect, id)] : []),
    ...(ttl === undefined ? [] : [claim(dialect, id, mark, ttl)]),
  ];
  const isOurs = sql`${isOf(id)} AND claimed_by = ${mark} AND held_until > 0`;
  const statements = [
    ...writes,
    sql`
      SELECT state, ${exact(sql`fence`)} AS fence, (SELECT generation FROM lockstep_store WHERE id = 1) AS generation
      FROM lockstep_entity WHERE ${isOurs}`,
    readMessages(id, isOurs),
    readAnswer(id, operationId),
    sql`
      SELECT input_hash FROM lockstep_message
      WHERE ${isOf(id)} AND operation_id = ${operationId}`,
  ];
  const what = `${quote(entityResource(id))} was visited`;
  return retryUntilKnown(address, what, signal, async (limit) => {
    const results = await database.batch(statements, limit);
    const [entity, messages, answer = [], waiting = []] = results
      .slice(writes.length)
      .map(({ rows }) => rows);
    const [known] = [...answer, ...waiting];
    return {
      inputHash: known && asText(known.input_hash),
      answer: toAnswer(answer),
      claimed: toClaimed(id, mark, entity?.[0], messages ?? []),
    };
  });
}

/** Makes the entity's row, or locks it, and counts its messages. */
function lockRow({ onConflict }: Dialect, { entity, key }: EntityId): Sql {
  return sql`
    INSERT INTO lockstep_entity (entity, entity_key, fence, claimed_by, held_until, seq)
    VALUES (${entity}, ${key}, 0, '', 0, 1)
    ${onConflict("entity, entity_key")} seq = lockstep_entity.seq + 1`;
}

function deliver({ now }: Dialect, id: EntityId, message: EntityMessage): Sql {
  const { operationId, handler, input, inputHash } = message;
  const isSame = sql`${isOf(id)} AND operation_id = ${operationId}`;
  return sql`
    INSERT INTO lockstep_message (
      entity, entity_key, operation_id, seq, handler, input, input_hash, at)
    SELECT entity, entity_key, ${operationId}, seq, ${handler}, ${input}, ${inputHash}, ${now}
    FROM lockstep_entity
    WHERE ${isOf(id)} AND NOT EXISTS (SELECT 1 FROM lockstep_message WHERE ${isSame})
      AND NOT EXISTS (SELECT 1 FROM lockstep_answer WHERE ${isSame})`;
}

/** Lets `waiting` find the entity. */
function noteWait({ now }: Dialect, id: EntityId): Sql {
  return sql`
    UPDATE lockstep_entity SET waits_since = ${now}
    WHERE ${isOf(id)} AND waits_since = 0 AND ${hasMessages(id)}`;
}

function claim({ now }: Dialect, id: EntityId, mark: string, ttl: Millis): Sql {
  return sql`
    UPDATE lockstep_entity
    SET fence = fence + 1, claimed_by = ${mark}, held_until = ${now} + ${micros(ttl)}
    WHERE ${isOf(id)} AND held_until <= ${now} AND claimed_by <> ${mark} AND ${hasMessages(id)}`;
}

/** Not EXISTS, for which PostgreSQL scans the messages of all entities if it expects many of this one. */
function hasMessages(id: EntityId): Sql {
  return sql`
    (SELECT seq FROM lockstep_message WHERE ${isOf(id)} ORDER BY seq LIMIT 1) IS NOT NULL`;
}

function toClaimed(
  id: EntityId,
  mark: string,
  entity: Row | undefined,
  messages: readonly Row[],
): ClaimedEntity | undefined {
  if (!entity) return undefined;
  const { generation, fence, state } = entity;
  return {
    id,
    fence: issueFence(entityResource(id), asNumber(generation), asBigInt(fence), mark),
    state: state == null ? undefined : asText(state),
    messages: messages.map(toMessage),
  };
}
