import { isClaimed } from "../../database/claim.ts";
import { type Dialect, list, type Sql, sql } from "../../database/sql.ts";
import type { Outcome } from "../inventory.ts";
import { hashOf, type Operation } from "../operation.ts";
import type { Done } from "../plan.ts";

/** One transaction that tries to do an operation; its mark is never used again. */
interface Attempt extends Operation {
  readonly mark: string;
}

/**
 * The statements of a transaction that does an operation or changes nothing.
 *
 * They run one after the other in one packet, whatever the ones before have found. So each says itself when it
 * must change nothing, and reads what the ones before did from the marks that they left in the rows. Not from
 * ROW_COUNT(): when the client's connection is cut, MariaDB runs the rest of a packet with a row count of -1,
 * and commits.
 */
export interface Statements {
  readonly before: readonly Sql[];

  /** Affects the stock's row exactly when the operation is done; replies with what is on hand then. */
  readonly change: Sql;
  readonly record: Sql;
  readonly after: readonly Sql[];
}

/** The statements that do the operation. */
export function toDo(dialect: Dialect, operation: Operation): Statements {
  return DO[operation.kind](dialect, { ...operation, mark: crypto.randomUUID() });
}

/**
 * The statements that take note of a refusal, if the operation still has to be refused; undefined where it
 * can only be late, a repetition, or about a sku that there is not.
 */
export function toRefuse(dialect: Dialect, operation: Operation): Statements | undefined {
  return REFUSE[operation.kind]?.(dialect, { ...operation, mark: crypto.randomUUID() });
}

type ToStatements = (dialect: Dialect, attempt: Attempt) => Statements;

const DO: Readonly<Record<Operation["kind"], ToStatements>> = {
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
    const sum = replied(dialect, sql`on_hand + ${quantity}`);
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
    // supplied first: it still needs the old on_hand, and MySQL assigns from left to right.
    const set = sql`
      supplied = supplied + ${quantity} - on_hand, on_hand = ${replied(dialect, sql`${quantity}`)}`;
    return {
      before: [create],
      change: change(attempt, set, may),
      record: record(dialect, attempt, "applied", sql`${quantity}`),
      after: [],
    };
  },

  confirm: (dialect, attempt) =>
    close(dialect, attempt, isConfirmable(dialect, attempt), (units) => {
      return sql`on_hand = ${replied(dialect, sql`on_hand`)}, sold = sold + ${units}`;
    }),

  cancel: (dialect, attempt) =>
    close(dialect, attempt, isOpen(attempt), (units) => {
      return sql`on_hand = ${replied(dialect, sql`on_hand + ${units}`)}`;
    }),
};

const REFUSE: Readonly<Partial<Record<Operation["kind"], ToStatements>>> = {
  decrement: soldOut,
  reserve: soldOut,
  confirm: (dialect, attempt) => closed(dialect, attempt, isConfirmable(dialect, attempt)),
  cancel: (dialect, attempt) => closed(dialect, attempt, isOpen(attempt)),
};

/** The one conditional decrement: the stock changes as far as it reaches, whoever else is at it. */
function take(dialect: Dialect, attempt: Attempt, add: Sql): Sql {
  const { quantity } = attempt;
  const set = sql`on_hand = ${replied(dialect, sql`on_hand - ${quantity}`)}, ${add}`;
  return change(attempt, set, sql`on_hand >= ${quantity} AND ${mayChange(dialect, attempt)}`);
}

/** There is too little, and no expired reservation that could be put back on hand. */
function soldOut(dialect: Dialect, attempt: Attempt): Statements {
  const { sku, quantity } = attempt;
  const set = sql`on_hand = ${replied(dialect, sql`on_hand`)}`;
  const where = sql`
    on_hand < ${quantity} AND ${mayChange(dialect, attempt)} AND NOT EXISTS (
      SELECT 1 FROM lockstep_reservation WHERE sku = ${sku} AND expires_at <= ${dialect.now})`;
  return {
    before: [],
    change: change(attempt, set, where),
    record: record(dialect, attempt, "sold-out", sql`${quantity}`),
    after: [],
  };
}

/** The reservation is marked, booked, recorded and removed. */
function close(
  dialect: Dialect,
  attempt: Attempt,
  condition: Sql,
  book: (units: Sql) => Sql,
): Statements {
  const { mark, reservation = "" } = attempt;
  const marked = sql`id = ${reservation} AND closed_by = ${mark}`;
  const units = sql`(SELECT quantity FROM lockstep_reservation WHERE ${marked})`;
  const markIt = sql`
    UPDATE lockstep_reservation SET closed_by = ${mark}
    WHERE ${condition} AND ${mayChange(dialect, attempt)}`;
  const set = sql`reserved = reserved - ${units}, ${book(units)}`;
  return {
    before: [markIt],
    change: change(attempt, set, sql`EXISTS (SELECT 1 FROM lockstep_reservation WHERE ${marked})`),
    record: record(dialect, attempt, "applied", units),
    after: [sql`DELETE FROM lockstep_reservation WHERE ${marked}`],
  };
}

/** There was such a reservation, and it cannot be closed this way any more. */
function closed(dialect: Dialect, attempt: Attempt, condition: Sql): Statements {
  const made = sql`
    FROM lockstep_ledger AS made
    WHERE made.operation_id = ${attempt.reservation ?? ""} AND made.sku = ${attempt.sku}
      AND made.kind = 'reserve' AND made.outcome = 'applied'`;
  const where = sql`
    ${mayChange(dialect, attempt)} AND EXISTS (SELECT 1 ${made})
    AND NOT EXISTS (SELECT 1 FROM lockstep_reservation WHERE ${condition})`;
  return {
    before: [],
    change: change(attempt, sql`on_hand = ${replied(dialect, sql`on_hand`)}`, where),
    record: record(dialect, attempt, "closed", sql`(SELECT made.quantity ${made})`),
    after: [],
  };
}

function isOpen({ sku, reservation = "" }: Attempt): Sql {
  return sql`id = ${reservation} AND sku = ${sku}`;
}

function isConfirmable({ now }: Dialect, attempt: Attempt): Sql {
  return sql`${isOpen(attempt)} AND expires_at > ${now}`;
}

/** Not late, and not done before. */
function mayChange(dialect: Dialect, { fence, operationId }: Operation): Sql {
  return sql`
    ${isClaimed(dialect, fence)}
    AND NOT EXISTS (SELECT 1 FROM lockstep_ledger WHERE operation_id = ${operationId})`;
}

function change({ sku, mark }: Attempt, set: Sql, where: Sql): Sql {
  return sql`
    UPDATE lockstep_stock SET ${set}, seq = seq + 1, changed_by = ${mark}
    WHERE sku = ${sku} AND ${where}`;
}

function isChanged({ mark }: Attempt): Sql {
  return sql`s.changed_by = ${mark}`;
}

function replied({ reply }: Dialect, number: Sql): Sql {
  return reply ? reply(number) : number;
}

/**
 * Takes note of the change, without asking again whether it may be made.
 *
 * While this transaction waited for the stock's row, the same operation may have committed in another one;
 * then the unique operation id refuses the note, and the change is rolled back with it.
 */
function record({ now }: Dialect, attempt: Attempt, outcome: Outcome, units: Sql): Sql {
  const { sku, operationId, kind, reservation, fence } = attempt;
  return sql`
    INSERT INTO lockstep_ledger (${COLUMNS})
    SELECT s.sku, s.seq, ${operationId}, ${hashOf(attempt)}, ${kind}, ${units}, ${outcome},
      s.on_hand, ${reservation ?? null}, ${fence?.generation ?? null}, ${fence?.token ?? null}, ${now}
    FROM lockstep_stock AS s
    WHERE s.sku = ${sku} AND ${isChanged(attempt)}`;
}

/** Takes note of decrements that were done together: after entry `seq`, at so many microseconds since 1970. */
export function recordAll(done: readonly Done[], seq: bigint, at: bigint): Sql {
  const rows = done.map(({ operation, hash, outcome, remaining }, i) => {
    const { operationId, kind, sku, quantity, fence } = operation;
    const { generation = null, token = null } = fence ?? {};
    return sql`(
      ${sku}, ${seq + BigInt(i + 1)}, ${operationId}, ${hash}, ${kind}, ${quantity}, ${outcome},
      ${remaining}, NULL, ${generation}, ${token}, ${at})`;
  });
  return sql`INSERT INTO lockstep_ledger (${COLUMNS}) VALUES ${list(rows)}`;
}

const COLUMNS = sql`
  sku, seq, operation_id, payload_hash, kind, quantity, outcome,
  on_hand, reservation, generation, token, at`;
