import { mutantsOf } from "../mutant.ts";

const MEMORY = ["test/entities/memory.test.ts"];
const SQLITE = ["test/entities/sqlite.process.test.ts"];

export const ENTITIES = [
  ...mutantsOf("core/steps/entity/actor.ts", MEMORY, [
    {
      name: "an operation id with another input that gets the first answer",
      find: "if (known === undefined || known === inputHash) return;",
      replace: 'if (known === undefined || known !== "") return;',
    },
    {
      name: "a turn that is kept when its caller aborts",
      find: "if (messages.length > 0) await this.#records.release(claimed).catch(() => {});",
      replace: "",
    },
    {
      name: "a lost turn that fails the call",
      find: `if (hasCode(error, "FENCED_OUT", "LOCK_LOST")) return { answers, isLong };`,
      replace: `if (hasCode(error, "FENCED_OUT", "LOCK_LOST")) throw error;`,
    },
    {
      name: "messages of one turn that all see its first state",
      find: "const before = group.at(-1)?.state ?? state;",
      replace: "const before = state;",
    },
    {
      name: "a turn that begins with the state before the last commit",
      find: "state = committed.change.state;",
      replace: "",
    },
    {
      name: "a handler that goes on after its turn",
      find: "const group = await handleGroup(entity, turn, messages, state, lease.signal);",
      replace:
        "const group = await handleGroup(entity, turn, messages, state, new AbortController().signal);",
    },
    {
      name: "keys that wait for newer code and hide all others",
      find: "if (answers.size === 0) stuck.add(entityResource(id));",
      replace: "",
    },
    {
      name: "an operation for a handler of newer code that fails",
      find: "if (!isKnown || signal?.aborted) break;",
      replace: "if (signal?.aborted) break;\n        void isKnown;",
    },
  ]),
  ...mutantsOf("core/stores/sql/journal/entities/visit.ts", SQLITE, [
    {
      name: "a held entity that is claimed",
      find: `AND held_until <= \${now} AND claimed_by <> \${mark}`,
      replace: `AND \${now} > 0 AND claimed_by <> \${mark}`,
    },
    {
      name: "a turn in the same fence",
      find: "SET fence = fence + 1, claimed_by",
      replace: "SET fence = fence + 0, claimed_by",
    },
    {
      name: "a message that is delivered after its answer",
      find: `AND NOT EXISTS (SELECT 1 FROM lockstep_answer WHERE \${isSame})\`;`,
      replace: "`;",
    },
    {
      name: "a told operation that nobody finds",
      find: `UPDATE lockstep_entity SET waits_since = \${now}`,
      replace: `UPDATE lockstep_entity SET waits_since = \${now} - \${now}`,
    },
  ]),
  ...mutantsOf("core/stores/sql/journal/entities/commit.ts", SQLITE, [
    {
      name: "a commit of an earlier turn",
      find: `SELECT fence FROM lockstep_entity WHERE \${isClaimedBy(claim)} \${forShare}),`,
      replace: `SELECT fence FROM lockstep_entity WHERE \${isOf(claim.id)} \${forShare}),`,
    },
    {
      name: "a turn that is not free after its last message",
      find: `SET held_until = CASE WHEN \${oldest} IS NULL THEN 0 ELSE held_until END,`,
      replace: `SET held_until = CASE WHEN \${oldest} IS NULL THEN held_until ELSE held_until END,`,
    },
    {
      name: "an answered message that stays",
      find: `sql\`DELETE FROM lockstep_message WHERE \${isOf(id)} AND operation_id IN (\${operationIds})\`,`,
      replace: `sql\`DELETE FROM lockstep_message WHERE \${isOf(id)} AND operation_id IN (\${operationIds}) AND 1 = 0\`,`,
    },
    {
      name: "a lost turn that counts as committed",
      find: "if (answered === fence.token) return;",
      replace: "if (answered !== null) return;",
    },
  ]),
  ...mutantsOf("core/stores/sql/journal/entities/index.ts", SQLITE, [
    {
      name: "a renewal of an earlier turn",
      find: "const isHeld = sql`${isClaimedBy(claim)} AND held_until > 0`;",
      replace: "const isHeld = sql`${isClaimedBy(claim)}`;",
    },
    {
      name: "answers that are purged before their keep is over",
      find: `WHERE expires_at <= \${now} ORDER BY expires_at LIMIT`,
      replace: "WHERE expires_at IS NOT NULL ORDER BY expires_at LIMIT",
    },
  ]),
];
