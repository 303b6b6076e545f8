import { fenceArguments, isClaimed } from "../../../database/claim.ts";
import { type Dialect, list, type Sql, sql } from "../../../database/sql.ts";
import type { StockOutcome } from "../../../inventory/inventory.ts";
import { type Operation, payloadHash } from "../../../inventory/operation.ts";
import type { PlannedOperation } from "../../../inventory/plan.ts";
import { chunksOf } from "../chunks.ts";

/** One transaction that tries to apply an operation. Its mark is unique. */
interface ChangeAttempt extends Operation {
  readonly mark: string;
}

/**
 * The statements of a transaction that applies an operation or changes nothing.
 *
 * They run in one batch, whatever the earlier statements have found. So each statement has its own condition, and
 * finds the effects of the earlier ones by the mark in their rows. ROW_COUNT() would not do: when the client's
 * connection is cut, MariaDB runs the rest of a batch with a row count of -1, and commits.
 */
export interface Statements {
  readonly before: readonly Sql[];

  /** Affects the stock's row if and only if the operation is applied; returns the units on hand. */
  readonly change: Sql;
  readonly record: Sql;
  readonly after: readonly Sql[];
}

/** Builds the statements that apply the operation. */
export function applyStatements(dialect: Dialect, operation: Operation): Statements {
  return APPLY[operation.kind](dialect, { ...operation, mark: crypto.randomUUID() });
}

/**
 * The call of a function that applies a decrement, in the same way, as the only statement. Its value is the units on hand, and
 * NULL if nothing was changed. Undefined for other kinds, and for databases without functions.
 */
export function applyCall(dialect: Dialect, operation: Operation): Sql | undefined {
  if (!dialect.hasFunctions || operation.kind !== "decrement") return undefined;
  const { sku, quantity, operationId, fence } = operation;
  return sql`
    SELECT lockstep_decrement(
      ${sku}, ${quantity}, ${operationId}, ${payloadHash(operation)}, ${fenceArguments(fence)}) AS on_hand`;
}

/**
 * Builds the statements that record a refusal, if the operation still has to be refused. Undefined for kinds that
 * fail only because the fence is late, the operation is a replay, or the sku does not exist.
 */
export function refusalStatements(dialect: Dialect, operation: Operation): Statements | undefined {
  return REFUSE[operation.kind]?.(dialect, { ...operation, mark: crypto.randomUUID() });
}

/**
 * Builds the statements that record a decrement as sold out, after `releaseExpired` in the same transaction: a reservation
 * that expires in between counts as open.
 */
export function soldOutStatements(dialect: Dialect, operation: Operation): Statements {
  const attempt = { ...operation, mark: crypto.randomUUID() };
  return refuse(dialect, attempt, sql`on_hand < ${operation.quantity}`);
}

type ToStatements = (dialect: Dialect, attempt: ChangeAttempt) => Statements;

const APPLY: Readonly<Record<Operation["kind"], ToStatements>> = {
  decrement: (dialect, attempt) => ({
    before: [],
    change: take(dialect, attempt, sql`sold = sold + ${attempt.quantity}`),
    record: record(dialect, attempt, "applied", sql`${attempt.quantity}`),
    after: [],
  }),

  reserve(dialect, attempt) {
    const { sku, quantity, operationId, expiresIn } = attempt;
    const open = sql`
      INSERT INTO lockstep_reservation (id, sku, quantity, expires_at)
      SELECT ${operationId}, s.sku, ${quantity}, ${dialect.now} + ${expiresIn}
      FROM lockstep_stock AS s
      WHERE s.sku = ${sku} AND ${isChanged(attempt)}`;
    return {
      before: [],
      change: take(dialect, attempt, sql`reserved = reserved + ${quantity}`),
      record: record(dialect, attempt, "applied", sql`${quantity}`),
      after: [open],
    };
  },

  restock(dialect, attempt) {
    const { quantity } = attempt;
    const sum = returned(dialect, sql`on_hand + ${quantity}`);
    const set = sql`on_hand = ${sum}, supplied = supplied + ${quantity}`;
    return {
      before: [],
      change: change(attempt, set, mayChange(dialect, attempt)),
      record: record(dialect, attempt, "applied", sql`${quantity}`),
      after: [],
    };
  },

  set(dialect, attempt) {
    const { sku, quantity } = attempt;
    const may = mayChange(dialect, attempt);
    const create = sql`
      INSERT INTO lockstep_stock (sku, on_hand, reserved, sold, supplied, seq, changed_by)
      SELECT sku, 0, 0, 0, 0, 0, ${""} FROM (SELECT ${sku} AS sku) AS named WHERE ${may}
      ${dialect.onConflict("sku")} sku = lockstep_stock.sku`;
    // supplied first: MySQL assigns from left to right, and supplied needs the old on_hand.
    const set = sql`
      supplied = supplied + ${quantity} - on_hand, on_hand = ${returned(dialect, sql`${quantity}`)}`;
    return {
      before: [create],
      change: change(attempt, set, may),
      record: record(dialect, attempt, "applied", sql`${quantity}`),
      after: [],
    };
  },

  confirm: (dialect, attempt) =>
    close(dialect, attempt, isConfirmable(dialect, attempt), (units) => {
      return sql`on_hand = ${returned(dialect, sql`on_hand`)}, sold = sold + ${units}`;
    }),

  cancel: (dialect, attempt) =>
    close(dialect, attempt, isOpen(attempt), (units) => {
      return sql`on_hand = ${returned(dialect, sql`on_hand + ${units}`)}`;
    }),
};

const REFUSE: Readonly<Partial<Record<Operation["kind"], ToStatements>>> = {
  decrement: soldOut,
  reserve: soldOut,
  confirm: (dialect, attempt) => closed(dialect, attempt, isConfirmable(dialect, attempt)),
  cancel: (dialect, attempt) => closed(dialect, attempt, isOpen(attempt)),
};

/** The conditional decrement: takes the units only if they suffice, under any concurrency. */
function take(dialect: Dialect, attempt: ChangeAttempt, add: Sql): Sql {
  const { quantity } = attempt;
  const set = sql`on_hand = ${returned(dialect, sql`on_hand - ${quantity}`)}, ${add}`;
  return change(attempt, set, sql`on_hand >= ${quantity} AND ${mayChange(dialect, attempt)}`);
}

/** Records that the units on hand do not suffice, and no expired reservation could be released. */
function soldOut(dialect: Dialect, attempt: ChangeAttempt): Statements {
  const { sku, quantity } = attempt;
  const expired = sql`
    SELECT 1 FROM lockstep_reservation WHERE sku = ${sku} AND expires_at <= ${dialect.now}`;
  return refuse(dialect, attempt, sql`on_hand < ${quantity} AND NOT EXISTS (${expired})`);
}

/** Records the decrement or reservation as sold out, if its units do not suffice. */
function refuse(dialect: Dialect, attempt: ChangeAttempt, isShort: Sql): Statements {
  const set = sql`on_hand = ${returned(dialect, sql`on_hand`)}`;
  return {
    before: [],
    change: change(attempt, set, sql`${isShort} AND ${mayChange(dialect, attempt)}`),
    record: record(dialect, attempt, "sold-out", sql`${attempt.quantity}`),
    after: [],
  };
}

/** Marks, books, records and removes the reservation. */
function close(
  dialect: Dialect,
  attempt: ChangeAttempt,
  condition: Sql,
  book: (units: Sql) => Sql,
): Statements {
  const { mark, reservation = "" } = attempt;
  const marked = sql`id = ${reservation} AND closed_by = ${mark}`;
  const units = sql`(SELECT quantity FROM lockstep_reservation WHERE ${marked})`;
  const markReservation = sql`
    UPDATE lockstep_reservation SET closed_by = ${mark}
    WHERE ${condition} AND ${mayChange(dialect, attempt)}`;
  const set = sql`reserved = reserved - ${units}, ${book(units)}`;
  return {
    before: [markReservation],
    change: change(attempt, set, sql`EXISTS (SELECT 1 FROM lockstep_reservation WHERE ${marked})`),
    record: record(dialect, attempt, "applied", units),
    after: [sql`DELETE FROM lockstep_reservation WHERE ${marked}`],
  };
}

/** Records that the reservation existed and can no longer be closed this way. */
function closed(dialect: Dialect, attempt: ChangeAttempt, condition: Sql): Statements {
  const made = readMade(attempt);
  const where = sql`
    ${mayChange(dialect, attempt)} AND EXISTS (${made})
    AND NOT EXISTS (SELECT 1 FROM lockstep_reservation WHERE ${condition})`;
  return {
    before: [],
    change: change(attempt, sql`on_hand = ${returned(dialect, sql`on_hand`)}`, where),
    record: record(dialect, attempt, "closed", sql`(${made})`),
    after: [],
  };
}

function isOpen({ sku, reservation = "" }: ChangeAttempt): Sql {
  return sql`id = ${reservation} AND sku = ${sku}`;
}

function isConfirmable({ now }: Dialect, attempt: ChangeAttempt): Sql {
  return sql`${isOpen(attempt)} AND expires_at > ${now}`;
}

/** The fence is not late, and the operation id is new. */
function mayChange(dialect: Dialect, { fence, operationId }: Operation): Sql {
  return sql`
    ${isClaimed(dialect, fence)}
    AND NOT EXISTS (SELECT 1 FROM lockstep_ledger WHERE operation_id = ${operationId})`;
}

function change({ sku, mark }: ChangeAttempt, set: Sql, where: Sql): Sql {
  return sql`
    UPDATE lockstep_stock SET ${set}, seq = seq + 1, changed_by = ${mark}
    WHERE sku = ${sku} AND ${where}`;
}

function isChanged({ mark }: ChangeAttempt): Sql {
  return sql`s.changed_by = ${mark}`;
}

function returned({ returning }: Dialect, number: Sql): Sql {
  return returning ? returning(number) : number;
}

/**
 * Writes the ledger entry of the change, without a condition of its own.
 *
 * While this transaction waited for the stock's row, the same operation may have committed in another one; the
 * unique operation id then refuses the entry, and the change is rolled back with it.
 */
function record({ now }: Dialect, attempt: ChangeAttempt, outcome: StockOutcome, units: Sql): Sql {
  const { sku, operationId, kind, reservation, fence } = attempt;
  return sql`
    INSERT INTO lockstep_ledger (${COLUMNS})
    SELECT s.sku, s.seq, ${operationId}, ${payloadHash(attempt)}, ${kind}, ${units}, ${outcome},
      s.on_hand, ${reservation ?? null}, ${fence?.generation ?? null}, ${fence?.token ?? null}, ${now}
    FROM lockstep_stock AS s
    WHERE s.sku = ${sku} AND ${isChanged(attempt)}`;
}

/** The most ledger entries in one statement: Workers allow a text of 100,000 bytes. */
const ENTRIES_AT_ONCE = 100;

/** Writes the ledger entries of a batch, after entry `seq`; `at` is in microseconds since 1970. */
export function recordAll(
  planned: readonly PlannedOperation[],
  seq: bigint,
  at: bigint,
): readonly Sql[] {
  const rows = planned.map(({ operation, hash, outcome, remaining }, i) => {
    const { operationId, kind, sku, quantity, fence } = operation;
    const { generation = null, token = null } = fence ?? {};
    return sql`(
      ${sku}, ${seq + BigInt(i + 1)}, ${operationId}, ${hash}, ${kind}, ${quantity}, ${outcome},
      ${remaining}, NULL, ${generation}, ${token}, ${at})`;
  });
  return chunksOf(rows, ENTRIES_AT_ONCE).map(
    (some) => sql`INSERT INTO lockstep_ledger (${COLUMNS}) VALUES ${list(some)}`,
  );
}

const COLUMNS = sql`
  sku, seq, operation_id, payload_hash, kind, quantity, outcome,
  on_hand, reservation, generation, token, at`;

/**
 * Builds the statements that put the units of the sku's expired reservations back on hand.
 *
 * The first statement marks the reservations, so that the later ones book, record and remove the same ones although
 * the clock goes on.
 */
export function releaseExpired({ now }: Dialect, sku: string): readonly Sql[] {
  const mark = crypto.randomUUID();
  const marked = sql`FROM lockstep_reservation AS r WHERE r.sku = ${sku} AND r.closed_by = ${mark}`;
  const units = sql`(SELECT COALESCE(SUM(r.quantity), 0) ${marked})`;
  return [
    sql`
      UPDATE lockstep_reservation SET closed_by = ${mark}
      WHERE sku = ${sku} AND expires_at <= ${now}`,
    sql`
      UPDATE lockstep_stock
      SET on_hand = on_hand + ${units}, reserved = reserved - ${units},
        seq = seq + (SELECT COUNT(*) ${marked}), changed_by = ${mark}
      WHERE sku = ${sku} AND EXISTS (SELECT 1 ${marked})`,
    sql`
      INSERT INTO lockstep_ledger (sku, seq, kind, quantity, outcome, on_hand, reservation, at)
      SELECT s.sku, s.seq - COUNT(*) OVER () + ROW_NUMBER() OVER (ORDER BY r.id),
        'expire', r.quantity, 'applied', s.on_hand, r.id, ${now}
      FROM lockstep_reservation AS r JOIN lockstep_stock AS s ON s.sku = r.sku
      WHERE r.sku = ${sku} AND r.closed_by = ${mark}`,
    sql`DELETE FROM lockstep_reservation WHERE sku = ${sku} AND closed_by = ${mark}`,
  ];
}

export function readStock(sku: string): Sql {
  return sql`
    SELECT on_hand, reserved, sold, supplied, seq FROM lockstep_stock WHERE sku = ${sku}`;
}

/** Reads the units of the reservation, if it was ever made. */
export function readMade({ sku, reservation = "" }: Operation): Sql {
  return sql`
    SELECT made.quantity FROM lockstep_ledger AS made
    WHERE made.operation_id = ${reservation} AND made.sku = ${sku}
      AND made.kind = 'reserve' AND made.outcome = 'applied'`;
}

export function readLedger({ operationId }: Operation): Sql {
  return sql`
    SELECT payload_hash, outcome, on_hand FROM lockstep_ledger WHERE operation_id = ${operationId}`;
}
