import { type Database, exact, list, type Row, type Sql, sql } from "../../../../database/sql.ts";
import {
  type EntityClaim,
  type EntityCommit,
  type EntityMessage,
  type EntityWrite,
  entityResource,
} from "../../../../journal/entities.ts";
import { quote } from "../../../../lock/errors.ts";
import { FencedOutError, formatFence } from "../../../../lock/fence.ts";
import { retryUntilKnown } from "../../../../lock/retry.ts";
import { isRefusal } from "../append.ts";
import { timeIn } from "../rows.ts";
import { checkStatement } from "../step-transaction.ts";
import { isClaimedBy, isOf, readMessages, toMessage } from "./rows.ts";

/**
 * Commits the change in one batch. The first statement locks the entity's row. The insert of an answer fails, and the
 * batch with it, if the claim is lost: the fence is then NULL, which the column refuses.
 */
export async function commit(
  database: Database,
  claim: EntityClaim,
  change: EntityCommit,
  signal: AbortSignal | undefined,
): Promise<readonly EntityMessage[]> {
  const own = change.writes.map(toStatement);
  const { id } = claim;
  const isOurs = isClaimedBy(claim);
  const operationIds = list(change.answers.map(({ message }) => message.operationId));
  const next = readMessages(id, sql`${isOurs} AND held_until > 0`);
  const oldest = sql`(SELECT at FROM lockstep_message WHERE ${isOf(id)} ORDER BY seq LIMIT 1)`;
  const statements = [
    sql`UPDATE lockstep_entity SET state = ${change.state} WHERE ${isOurs}`,
    ...change.answers.map((answer) => insertAnswer(database, claim, answer, change)),
    sql`DELETE FROM lockstep_message WHERE ${isOf(id)} AND operation_id IN (${operationIds})`,
    ...own,
    sql`
      UPDATE lockstep_entity
      SET held_until = CASE WHEN ${oldest} IS NULL THEN 0 ELSE held_until END,
        waits_since = COALESCE(${oldest}, 0)
      WHERE ${isOurs}`,
    next,
  ];
  const what = `messages of ${quote(entityResource(id))} were answered`;
  return retryUntilKnown(database.address, what, signal, async (limit) => {
    try {
      const results = await database.batch(statements, limit);
      return (results.at(-1)?.rows ?? []).map(toMessage);
    } catch (error) {
      if (!isRefusal(error)) throw error;
      await checkCommitted(database, claim, change, error, limit);
      return (await database.read(next, limit)).map(toMessage);
    }
  });
}

function toStatement(write: EntityWrite): Sql {
  if (!("texts" in write))
    throw new TypeError("`writes` of a handler are statements made by `sql`");
  checkStatement(write as Sql);
  return write as Sql;
}

function insertAnswer(
  { dialect: { now, forShare } }: Database,
  claim: EntityClaim,
  { message, outcome, value }: EntityCommit["answers"][number],
  { keep }: EntityCommit,
): Sql {
  const { entity, key } = claim.id;
  const { operationId, inputHash } = message;
  return sql`
    INSERT INTO lockstep_answer (
      entity, entity_key, operation_id, input_hash, outcome, value, fence, at, expires_at)
    VALUES (
      ${entity}, ${key}, ${operationId}, ${inputHash}, ${outcome}, ${value}, (
        SELECT fence FROM lockstep_entity WHERE ${isClaimedBy(claim)} ${forShare}),
      ${now}, ${timeIn(now, keep)})`;
}

/** Throws unless an earlier request of this commit, whose answer was lost, has committed it. */
async function checkCommitted(
  database: Database,
  claim: EntityClaim,
  { answers }: EntityCommit,
  error: unknown,
  limit: AbortSignal,
): Promise<void> {
  const { id, fence } = claim;
  const [first] = answers;
  const rows: readonly Row[] = await database.read(
    sql`
      SELECT ${exact(sql`e.fence`)} AS fence, ${exact(sql`a.fence`)} AS answered
      FROM lockstep_entity AS e LEFT JOIN lockstep_answer AS a
        ON a.entity = e.entity AND a.entity_key = e.entity_key
          AND a.operation_id = ${first?.message.operationId ?? ""}
      WHERE e.entity = ${id.entity} AND e.entity_key = ${id.key}`,
    limit,
  );
  const current = BigInt(String(rows[0]?.fence ?? 0));
  const answered = rows[0]?.answered == null ? undefined : BigInt(String(rows[0].answered));
  if (answered === fence.token) return;
  if (current === fence.token) throw error;
  throw new FencedOutError(fence, formatFence(fence.generation, current));
}
