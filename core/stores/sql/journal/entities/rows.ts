import { asText, type Row, type Sql, sql } from "../../../../database/sql.ts";
import type {
  EntityAnswer,
  EntityClaim,
  EntityId,
  EntityMessage,
} from "../../../../journal/entities.ts";
import { MOST_MESSAGES } from "../../../../journal/entities.ts";
import { fenceOwner } from "../../../../lock/fence.ts";

/** A condition for each of the tables of entities. */
export function isOf({ entity, key }: EntityId): Sql {
  return sql`entity = ${entity} AND entity_key = ${key}`;
}

/** A condition for the entity's row. Once false, it stays false: a later claim has another fence. */
export function isClaimedBy({ id, fence }: EntityClaim): Sql {
  return sql`${isOf(id)} AND fence = ${fence.token} AND claimed_by = ${fenceOwner(fence) ?? ""}`;
}

/** Reads the oldest messages of the entity, while `condition` holds for its row. */
export function readMessages(id: EntityId, condition: Sql): Sql {
  return sql`
    SELECT operation_id, handler, input, input_hash FROM lockstep_message
    WHERE ${isOf(id)} AND EXISTS (SELECT 1 FROM lockstep_entity WHERE ${condition})
    ORDER BY seq LIMIT ${MOST_MESSAGES}`;
}

export function toMessage(row: Row): EntityMessage {
  return {
    operationId: asText(row.operation_id),
    handler: asText(row.handler),
    input: asText(row.input),
    inputHash: asText(row.input_hash),
  };
}

export function readAnswer(id: EntityId, operationId: string): Sql {
  return sql`
    SELECT input_hash, outcome, value, fence FROM lockstep_answer
    WHERE ${isOf(id)} AND operation_id = ${operationId}`;
}

export function toAnswer([row]: readonly Row[]): EntityAnswer | undefined {
  return (
    row && {
      outcome: asText(row.outcome) as EntityAnswer["outcome"],
      value: asText(row.value),
    }
  );
}
