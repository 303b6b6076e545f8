import { checkFunction, checkSignal, wrongType } from "../lock/checks.ts";
import type {
  StoreRefusedError,
  StoreUnavailableError,
  UnknownOutcomeError,
} from "../lock/errors.ts";

export type SqlValue = string | number | bigint | Uint8Array | null;

/** A statement or a part of one. Values stand apart from the text. */
export interface Sql {
  /** One more text than values: value i stands between texts i and i + 1. */
  readonly texts: readonly string[];
  readonly values: readonly SqlValue[];
}

/** Marks parts of SQL: input of a user, such as parsed JSON, cannot have it. The same for all copies of this module. */
const IS_SQL = Symbol.for("lockstep.sql");

class SqlParts implements Sql {
  readonly texts: readonly string[];
  readonly values: readonly SqlValue[];

  /** Why a database refuses it as a statement. */
  readonly problem: string | undefined;

  constructor(texts: readonly string[], values: readonly SqlValue[], problem?: string) {
    this.texts = texts;
    this.values = values;
    this.problem = problem;
  }

  get [IS_SQL](): true {
    return true;
  }
}

/** Makes SQL from a template. A placeholder takes a value or another part of SQL. */
export function sql(strings: TemplateStringsArray, ...parts: readonly (SqlValue | Sql)[]): Sql {
  if (!Array.isArray(strings?.raw)) {
    throw new TypeError("sql is the tag of a template, such as sql`SELECT 1`, and no function");
  }
  return join(strings, parts, problemOf(strings));
}

/** By template, of which a program has few. */
const problems = new WeakMap<readonly string[], string | undefined>();

const CONTROL = /^\s*(begin|start\s+transaction|commit|rollback|savepoint|release|abort)\b/i;

/** Literals, quoted names, comments, and texts between dollar signs. */
const QUOTED = /'[^']*'|"[^"]*"|`[^`]*`|--[^\n]*|\/\*.*?\*\/|\$(\w*)\$.*?\$\1\$/gs;

/** A transaction would end before its time, or only the first of several statements would be executed. */
function problemOf(strings: readonly string[]): string | undefined {
  if (problems.has(strings)) return problems.get(strings);
  const text = strings.join("?");
  const [, word] = CONTROL.exec(text) ?? [];
  // The body of a trigger or procedure has semicolons.
  const bare = /^\s*create\b/i.test(text) ? "" : text.replace(QUOTED, "").trim().replace(/;$/, "");
  const problem = word
    ? `the calls of a database begin and end its transactions, no statement such as ${word.toUpperCase()}`
    : bare.includes(";")
      ? "a statement must not contain a semicolon; pass several statements as a list"
      : undefined;
  problems.set(strings, problem);
  return problem;
}

/** Makes SQL of a text of this package. A text from outside may only be a value. */
export function raw(text: string): Sql {
  return new SqlParts([text], []);
}

/** Joins the parts with commas. Throws a RangeError for an empty list. */
export function list(parts: readonly (SqlValue | Sql)[]): Sql {
  if (!Array.isArray(parts)) throw wrongType("the parts of a list in SQL", "a list", parts);
  if (parts.length === 0) throw new RangeError("a list in SQL needs at least one element");
  return join(["", ...Array(parts.length - 1).fill(", "), ""], parts);
}

/** Puts part i between texts i and i + 1. */
function join(
  strings: readonly string[],
  parts: readonly (SqlValue | Sql)[],
  problem?: string,
): Sql {
  let wrong = problem;
  const texts: string[] = [];
  const values: SqlValue[] = [];
  let open = strings[0] ?? "";
  const add = (value: SqlValue, next = "") => {
    texts.push(open);
    values.push(value);
    open = next;
  };
  parts.forEach((part, i) => {
    if (isSql(part)) {
      open += part.texts[0] ?? "";
      wrong ??= (part as SqlParts).problem;
      part.values.forEach((value, k) => {
        add(value, part.texts[k + 1]);
      });
    } else add(checkValue(part));
    open += strings[i + 1] ?? "";
  });
  return new SqlParts([...texts, open], values, wrong);
}

function isSql(part: SqlValue | Sql): part is Sql {
  return typeof part === "object" && part !== null && IS_SQL in part;
}

const CHANGE = /^\s*(insert|update|delete|replace|merge|create|alter|drop|truncate)\b/i;

/** Throws a TypeError unless this is a statement that reads, and `signal` is one or missing. */
export function checkRead(statement: Sql, signal?: AbortSignal): void {
  checkBatch([statement], signal);
  const [, word] = CHANGE.exec(statement.texts[0] ?? "") ?? [];
  if (word === undefined) return;
  throw new TypeError(
    `read takes a statement that reads, and may repeat it, not ${word.toUpperCase()}: use batch`,
  );
}

/** Throws a TypeError unless these are statements, and `signal` is one or missing. */
export function checkBatch(statements: unknown, signal?: AbortSignal): void {
  if (!Array.isArray(statements)) {
    throw wrongType("statements", "a list such as [sql`…`]", statements);
  }
  for (const statement of statements) checkStatement(statement);
  checkSignal(signal);
}

function checkStatement(statement: unknown): void {
  const { texts, values, problem } = Object(statement) as Partial<SqlParts>;
  if (problem !== undefined) throw new TypeError(problem);
  if (Array.isArray(texts) && Array.isArray(values)) return;
  throw wrongType("a statement", "made by sql`…`", statement);
}

/** Throws a TypeError unless the body is a function, and `signal` is one or missing. */
export function checkTransaction(body: unknown, signal?: AbortSignal): void {
  checkFunction("the body of a transaction", body);
  checkSignal(signal);
}

/**
 * Throws a TypeError for values that the types exclude: a store might take the text of an object for SQL. Throws a
 * RangeError for a number that is not finite: SQLite would store NULL.
 */
export function checkValue(value: SqlValue): SqlValue {
  const type = typeof value;
  if (type === "number" && !Number.isFinite(value)) {
    throw new RangeError(`a number in SQL must be finite, not ${value}`);
  }
  if (type === "string" || type === "number" || type === "bigint") return value;
  if (value === null || value instanceof Uint8Array) return value;
  if (type !== "object") {
    throw wrongType("a value in SQL", "a string, a number, a bigint, bytes or null", value);
  }
  const kind = (value as unknown as object).constructor?.name ?? "object";
  throw new TypeError(
    `a value in SQL must be a string, a number, a bigint, bytes or null, not ${Array.isArray(value) ? "an array" : `an object (${kind})`}`,
  );
}

export type Row = Readonly<Record<string, unknown>>;

export interface SqlResult {
  readonly rows: readonly Row[];

  /** Rows that a change matched, whether or not their values differ afterwards; of a statement with rows, their number. */
  readonly affected: number;

  /** The number that the statement passed to `Dialect.returning`. Undefined without one. */
  readonly returned: bigint | undefined;
}

/** One change of the schema. */
export interface Migration {
  /** Begins with the number of the schema's version, as in "0001-locks". */
  readonly name: string;

  /** Statements in SQL. Each ends with a semicolon at the end of a line, and nothing else does. */
  readonly script: string;
}

/**
 * The SQL that differs between databases. Each database's folder in core/stores provides one.
 *
 * All other SQL keeps to what the databases share:
 *
 * - In the assignments of an upsert, a column of the existing row is qualified by its table: the bare name may be
 *   ambiguous.
 * - An UPDATE reads a column before it assigns it. Some databases assign from left to right; others read old values
 *   throughout.
 */
export interface Dialect {
  /** The database's folder in core/stores, its URL's scheme, and the name of its locks. */
  readonly name: string;

  /** The number of migrations. A database that has them all is opened without loading them. */
  readonly migrationCount: number;

  /** The schema, in order. Loaded when `migrate` asks for it. */
  migrations(): Promise<readonly Migration[]>;

  /** Whether an INSERT may end with RETURNING, and answers with columns of its row then. */
  readonly returnsRows: boolean;

  /**
   * Reads the `version` of each applied migration. The migrations that make functions count as applied while all functions exist: a
   * copy of the tables alone lacks them.
   */
  readonly applied: Sql;

  /**
   * Whether the database executes one batch after the other, and repeats the body of a transaction when another one has
   * changed what it has read. Otherwise transactions wait for each other's rows.
   */
  readonly isOptimistic: boolean;

  /** Makes a transaction create its tables beside those that are there already. Empty: there is one place for all. */
  readonly besideTables: readonly Sql[];

  /** Whether a CREATE or ALTER commits the transaction around it. */
  readonly ddlCommits: boolean;

  /** The database's clock in microseconds since 1970. Constant within a statement. */
  readonly now: Sql;

  /** Ends an INSERT. Assignments for the existing row with the same key follow. */
  onConflict(column: string): Sql;

  /** In those assignments: the value that the INSERT has for `column`. `value` is the expression that computes it. */
  proposed(column: string, value: Sql): Sql;

  /** Makes a change answer with the number that it stores. Undefined: a SELECT has to read the number. */
  readonly returning: ((number: Sql) => Sql) | undefined;

  /**
   * Whether migrations have made functions of the most frequent statements, for a database that keeps the plans of
   * functions and plans the text of a statement each time.
   */
  readonly hasFunctions: boolean;

  /** Ends a SELECT: reads committed rows, and no other transaction changes them before this one ends. */
  readonly forShare: Sql;

  /** Ends a SELECT: as `forShare`, and no other transaction locks the rows either. */
  readonly forUpdate: Sql;

  /** As `forUpdate`, but leaves out rows that another transaction has locked. */
  readonly skipLocked: Sql;
}

/**
 * A share of the connections. Calls in "locks" never wait behind calls in "work", which may wait for locked rows.
 * "renewals" is as "locks", for statements that only extend what their condition proves to be held: where an open
 * transaction of this process excludes all other writers, they become part of that transaction, and survive its rollback.
 */
export type ConnectionLane = "work" | "locks" | "renewals";

/**
 * A database with the tables of this package. Its calls reject with
 *
 * - a {@link StoreUnavailableError} when nothing has happened,
 * - a {@link StoreRefusedError} when nothing has happened and a retry would not help,
 * - an {@link UnknownOutcomeError} when the answer was lost,
 * - a {@link DuplicateKeyError} when a unique key refused a row. Nothing has happened.
 *
 * Transactions are read committed or stricter. The database repeats a transaction after a deadlock, and after its
 * connection was lost before the COMMIT was sent. Without a signal, a call ends after 10 seconds.
 */
export interface Database extends AsyncDisposable {
  /** The database's URL without secrets, for messages. */
  readonly address: string;
  /** @internal */
  readonly dialect: Dialect;

  /**
   * For databases that carry notices between their clients.
   *
   * @internal
   */
  readonly notices?: Notices | undefined;

  /** Runs the statements as one transaction in one round trip. The default lane is "work". */
  batch(
    statements: readonly Sql[],
    signal?: AbortSignal,
    lane?: ConnectionLane,
  ): Promise<readonly SqlResult[]>;

  /** Runs one SELECT outside of any transaction. A lost answer is a {@link StoreUnavailableError}. */
  read(statement: Sql, signal?: AbortSignal): Promise<readonly Row[]>;

  /** Runs a transaction of several round trips. Rolls back if `body` does not call `commit`. */
  transaction<T>(body: (tx: Transaction) => Promise<T>, signal?: AbortSignal): Promise<T>;

  close(): Promise<void>;
}

/** Notices between the clients of a database. A notice may be lost. */
export interface Notices {
  /** An expression that sends `text` over the channel when its transaction commits. Such commits wait for each other. */
  send(channel: string, text: Sql): Sql;

  /** Calls `onText` with each text of the channel, and with undefined when texts may have been lost, until the returned function is called. */
  listen(channel: string, onText: (text: string | undefined) => void): () => void;

  /** Whether the texts of this channel arrive at the moment. */
  isActive(channel: string): boolean;

  close(): Promise<void>;
}

/** Ends with its first failure, its commit or its body. Refuses later calls. */
export interface Transaction {
  /** Runs the statements in one round trip. */
  batch(statements: readonly Sql[]): Promise<readonly SqlResult[]>;

  /** Runs the last statements and COMMIT in one round trip. */
  commit(statements: readonly Sql[]): Promise<readonly SqlResult[]>;
}

/** A unique key refused a row. Nothing has happened. */
export class DuplicateKeyError extends Error {
  override readonly name = "DuplicateKeyError";
  readonly code = "DUPLICATE_KEY";
  readonly retryable = false;
}

/** In the columns of a SELECT: an integer beyond 2^53, exact where the database answers with doubles. */
export function exact(integer: Sql): Sql {
  return sql`CAST(${integer} AS CHAR(20))`;
}

/** Keeps a byte order mark: it is part of the value. */
const utf8 = new TextDecoder("utf-8", { ignoreBOM: true, fatal: true });

/** Converts a text column's value, which some databases return as bytes. */
export function asText(value: unknown): string {
  return value instanceof Uint8Array ? utf8.decode(value) : String(value);
}

/** Converts an integer column's value exactly. */
export function asBigInt(value: unknown): bigint {
  return BigInt(value as string | number | bigint);
}

/** Converts an integer column's value. Throws a RangeError instead of rounding. */
export function asNumber(value: unknown): number {
  const number = Number(value);
  if (!Number.isSafeInteger(number)) throw new RangeError(`${value} is not a safe integer`);
  return number;
}
