import { mutantsOf } from "../mutant.ts";

/** The locks of SQLite: what they share with the other SQL stores. */
const LOCKS = ["test/stores/sqlite.process.test.ts"];
const STOCK = ["test/inventory/sqlite.process.test.ts"];
const MARIADB = ["test/inventory/mysql.server.test.ts"];
const SILENT = ["test/faults/silent-transactions.all.server.test.ts"];

export const SQL = [
  ...mutantsOf("core/stores/sql/locks.ts", LOCKS, []),
  ...mutantsOf("core/database/claim.ts", STOCK, [
    {
      name: "an equal fence of another owner that passes at the write",
      find: `AND (owner = \${ownerOf(fence)} OR owner IS NULL)`,
      replace: "",
      only: "fence",
    },
    {
      name: "an equal fence of another owner that passes at the claim",
      find: "if (isEqual && (row.owner === null || asText(row.owner) === ownerOf(fence))) return;",
      replace: "if (isEqual) return;",
      only: "fence",
    },
    {
      name: "a claim in a transaction whose answer is not read",
      find: `const results = await tx.batch(claimAndRead(database.dialect, fence));
  checkClaim(fence, results.at(-1)?.rows ?? []);`,
      replace: "await tx.batch(claimAndRead(database.dialect, fence));",
      tests: ["test/database/sqlite.process.test.ts", "test/database/sql.server.test.ts"],
    },
  ]),
  ...mutantsOf(
    "core/database/serial-calls.ts",
    ["test/database/sqlite.process.test.ts", "test/database/sql.server.test.ts"],
    [
      {
        name: "a transaction that goes on after a failed statement",
        find: "if (this.#failure) throw repeat(this.#failure.error);",
        replace: "",
      },
      {
        name: "a statement that runs after its transaction",
        find: "if (this.#isOver) {",
        replace: "if (this.#address === undefined) {",
      },
      {
        name: "statements of one transaction that run at once",
        find: "this.#last = answer.catch(() => {});",
        replace: "",
      },
    ],
  ),
  ...mutantsOf("core/stores/sql/inventory/apply.ts", STOCK, [
    {
      name: "a late fence that is refused without an error",
      find: "if (fence && claim?.[0]) checkClaim(fence, claim);",
      replace: "void checkClaim;",
      only: "late|fence",
    },
    {
      name: "an unknown sku that is sold out",
      find: "if (!stock?.[0]) throw unknownSku(sku);",
      replace: `if (!stock?.[0]) return { outcome: "sold-out", remaining: 0, replayed: Boolean(unknownSku) };`,
    },
    {
      name: "a refusal that does not release expired reservations",
      find: `await database.batch(releaseExpired(database.dialect, sku), limit);
  return undefined;`,
      replace: `void releaseExpired;
  return { outcome: "sold-out", remaining: 0, replayed: false };`,
      only: "expired",
    },
    {
      name: "a replay that is reported as new",
      find: "return toResult(ledger[0], operation, results[writes.length - 2]?.affected !== 1);",
      replace: "return toResult(ledger[0], operation, false);",
      only: "once|replay",
    },
    {
      name: "a race for one operation id that is reported as a failure",
      find: "if (error instanceof DuplicateKeyError) return undefined;",
      replace: "void DuplicateKeyError;",
      tests: MARIADB,
    },
  ]),
  ...mutantsOf("core/stores/sql/inventory/statements.ts", STOCK, [
    {
      name: "an operation without the check of its id",
      find: `AND NOT EXISTS (SELECT 1 FROM lockstep_ledger WHERE operation_id = \${operationId})\`;`,
      replace: `AND \${operationId} = \${operationId}\`;`,
    },
    {
      name: "a reservation whose units stay on hand",
      find: `change: take(dialect, attempt, sql\`reserved = reserved + \${quantity}\`),`,
      replace: `change: change(attempt, sql\`reserved = reserved + \${quantity}\`, mayChange(dialect, attempt)),`,
      only: "reserv",
    },
    {
      name: "a cancelled reservation that does not go back on hand",
      find: `return sql\`on_hand = \${returned(dialect, sql\`on_hand + \${units}\`)}\`;`,
      replace: `return sql\`on_hand = \${returned(dialect, sql\`on_hand + 0 * \${units}\`)}\`;`,
      only: "reserv",
    },
    {
      name: "a confirmed reservation that counts as nothing sold",
      find: `sold = sold + \${units}\`;`,
      replace: `sold = sold + 0 * \${units}\`;`,
      only: "reserv",
    },
    {
      name: "a closed reservation that can be closed again",
      find: `after: [sql\`DELETE FROM lockstep_reservation WHERE \${marked}\`],`,
      replace: "after: [],",
      only: "reserv",
    },
    {
      name: "a reservation that another sku closes",
      find: `return sql\`id = \${reservation} AND sku = \${sku}\`;`,
      replace: `return sql\`id = \${reservation} AND \${sku} = \${sku}\`;`,
      only: "reserv",
    },
    {
      name: "a count of the stock that forgets what was supplied",
      find: `supplied = supplied + \${quantity} - on_hand, on_hand`,
      replace: `supplied = supplied + \${quantity}, on_hand`,
    },
    {
      name: "an expired reservation that is put back at each look",
      find: `sql\`DELETE FROM lockstep_reservation WHERE sku = \${sku} AND closed_by = \${mark}\`,`,
      replace: "",
      only: "expired",
    },
  ]),
  ...mutantsOf("core/stores/sql/inventory/batch.ts", MARIADB, [
    {
      name: "a batch of a late holder",
      find: "if (fence && isNew) checkClaim(fence, claimed);",
      replace: "void checkClaim;",
      only: "late|fence|batch",
    },
    {
      name: "a batch that is short and does not release expired reservations",
      find: "if (isShort && state.hasExpired) return { writes: [] };",
      replace: "",
      only: "batch",
    },
    {
      name: "a batch whose results are not committed",
      find: "if (results) await tx.commit(writes);",
      replace: "if (results) await tx.batch(writes);",
      only: "batch",
    },
    {
      name: "a batch that sells one unit too many",
      find: "return quantity <= onHand",
      replace: "return quantity <= onHand + 1",
      only: "batch",
    },
  ]),
  ...mutantsOf("core/stores/sql/inventory/one-batch.ts", STOCK, []),
  ...mutantsOf("core/stores/sql/inventory/index.ts", MARIADB, [
    {
      name: "a transaction of the caller that does not lock the stock first",
      find: `const database = prepend(tx, [...(fence ? [claim(tx.dialect, fence)] : []), lock]);`,
      replace: `const database = prepend(tx, [...(fence ? [claim(tx.dialect, fence)] : []), ...[lock].slice(1)]);`,
      only: "transaction",
    },
    {
      name: "a transaction of the caller without the claim",
      find: `const database = prepend(tx, [...(fence ? [claim(tx.dialect, fence)] : []), lock]);`,
      replace: "const database = prepend(tx, [lock]);",
      only: "transaction",
    },
  ]),
  ...mutantsOf("core/stores/mysql/errors.ts", ["test/faults/mysql.all.server.test.ts"], []),
  ...mutantsOf(
    "core/stores/postgres/migrations.ts",
    ["test/stores/postgres.server.test.ts"],
    [
      {
        name: "a function of PostgreSQL that takes a held lock",
        find: "  WHERE l.free_at <= time_now OR l.owner = lock_owner;\n",
        replace: "  WHERE TRUE;\n",
      },
      {
        name: "a function of PostgreSQL that counts no fence",
        find: "SET fence = GREATEST(f.fence + 1, excluded.fence)",
        replace: "SET fence = GREATEST(f.fence, excluded.fence)",
      },
      {
        name: "a function of PostgreSQL that releases another owner's lock",
        find: "WHERE name = lock_name AND owner = lock_owner\n",
        replace: "WHERE name = lock_name\n",
      },
      {
        name: "a function of PostgreSQL that sells without the fence's claim",
        find: `WHERE resource = of_resource AND generation = of_generation AND token = of_token
        AND (owner = of_owner OR owner IS NULL)
`,
        replace: "WHERE resource = of_resource\n",
        tests: ["test/inventory/postgres.server.test.ts"],
      },
      {
        name: "a function of PostgreSQL that sells an operation twice",
        find: "WHERE operation_id = operation)\n",
        replace: "WHERE operation_id = operation AND FALSE)\n",
        tests: ["test/inventory/postgres.server.test.ts"],
      },
      {
        name: "a function of PostgreSQL that gives an equal claim to another owner",
        find: "THEN COALESCE(c.owner, of_owner)\n",
        replace: "THEN of_owner\n",
        tests: ["test/inventory/postgres.server.test.ts"],
      },
      {
        name: "a function of PostgreSQL that records for a holder that has lost its run",
        find: "WHERE r.run_id = of_run AND r.epoch = of_epoch AND r.status = 'running' FOR SHARE;",
        replace: "WHERE r.run_id = of_run FOR SHARE;",
        tests: ["test/journal/postgres.server.test.ts"],
      },
      {
        name: "a function of PostgreSQL that records before an earlier record",
        find: "time_now := GREATEST(time_now, last_at + 1);\n",
        replace: "",
        tests: ["test/stores/postgres/functions.server.test.ts"],
      },
    ],
  ),
  ...mutantsOf(
    "core/stores/postgres/errors.ts",
    ["test/faults/postgres.all.server.test.ts"],
    [
      {
        name: "a lost answer of PostgreSQL to a COMMIT that counts as not done",
        find: "return new UnknownOutcomeError(address, `a request was executed${reason}`, error);",
        replace: "return new StoreRefusedError(address, `no answer${reason}`, error);",
      },
      {
        name: "a deadlock of PostgreSQL that is not repeated",
        find: `new Set(["40001", "40P01", "55P03", "25P03", "57P05"]);`,
        replace: `new Set(["25P03", "57P05"]);`,
        tests: ["test/faults/postgres.all.server.test.ts", "test/database/sql.server.test.ts"],
      },
      {
        name: "a shutdown of PostgreSQL that proves a rollback",
        find: `READ_ONLY, "57014", "53100", TOO_MANY_CONNECTIONS, "57P03"`,
        replace: `READ_ONLY, "57014", "53100", TOO_MANY_CONNECTIONS, "57P03", "57P01"`,
      },
    ],
  ),
  ...mutantsOf(
    "core/stores/sql/server/database.ts",
    ["test/database/sql.server.test.ts"],
    [
      {
        name: "a body without a commit that is committed",
        find: "if (open && failure() === undefined) await query(rollback(this.#driver)).catch(() => {});",
        replace: `if (open && failure() === undefined) await query(["COMMIT"]).catch(() => {});`,
      },
      {
        name: "a transaction that goes on after a silence",
        find: "if (answeredAt && elapsedSince(answeredAt) >= LONGEST_SILENCE) {",
        replace: "if (answeredAt && elapsedSince(answeredAt) < 0) {",
        tests: SILENT,
        only: "after a pause",
      },
      {
        name: "a silent transaction that is repeated for ever",
        find: "if (error.message === SILENT && attempt > 0) {",
        replace: "if (error.message === SILENT && attempt < 0) {",
        tests: SILENT,
        only: "each time",
      },
      {
        name: "a rolled-back transaction that is not repeated",
        find: "if (!(error instanceof RolledBackError)) return undefined;",
        replace: "if (error !== null) return undefined;",
        tests: ["test/faults/postgres.all.server.test.ts"],
        only: "deadlock",
      },
      {
        name: "an error of the body that hides a rollback",
        find: "throw failure() instanceof RolledBackError ? failure() : error;",
        replace: "throw error;",
        tests: ["test/faults/postgres.all.server.test.ts"],
        only: "deadlock",
      },
      {
        name: "a read whose answer is lost and that counts as a change",
        find: "if (!(error instanceof UnknownOutcomeError)) throw error;",
        replace: "if (error !== null) throw error;",
        tests: ["test/faults/postgres.all.server.test.ts"],
      },
    ],
  ),
  ...mutantsOf("core/stores/postgres/database.ts", SILENT, [
    {
      name: "a silent transaction that PostgreSQL keeps",
      find: "limitSilence: [`SET LOCAL idle_in_transaction_session_timeout = ${LONGEST_SILENCE}`],",
      replace: "limitSilence: [],",
      only: "by the server",
    },
  ]),
  ...mutantsOf(
    "core/stores/sql/server/pool.ts",
    ["test/faults/frozen-connect.all.server.test.ts"],
    [
      {
        name: "a connection that is not tried again after a freeze",
        find: "if (elapsedSince(startedAt) > LONGEST_CONNECT + LATE_TIMER) return undefined;",
        replace: "",
      },
    ],
  ),
];
