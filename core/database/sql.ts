import type {
  StoreRefusedError,
  StoreUnavailableError,
  UnknownOutcomeError,
} from "../lock/errors.ts";

export type SqlValue = string | number | bigint | Uint8Array | null;

/** A statement, or a piece of one, whose values never become part of its text. */
export interface Sql {
  /** One more than the values that stand between them. */
  readonly texts: readonly string[];
  readonly values: readonly SqlValue[];
}

/** SQL as a template: what is put into it is either a value or another piece of SQL. */
export function sql(strings: TemplateStringsArray, ...parts: readonly (SqlValue | Sql)[]): Sql {
  return join(strings, parts);
}

/** The pieces with commas between them. There must be at least one. */
export function list(pieces: readonly (SqlValue | Sql)[]): Sql {
  if (pieces.length === 0) throw new RangeError("a list in SQL needs at least one element");
  return join(["", ...Array(pieces.length - 1).fill(", "), ""], pieces);
}

/** Weaves the parts into the texts, of which there is one more. */
function join(strings: readonly string[], parts: readonly (SqlValue | Sql)[]): Sql {
  const texts: string[] = [];
  const values: SqlValue[] = [];
  let open = strings[0] ?? "";
  parts.forEach((part, i) => {
    const next = strings[i + 1] ?? "";
    if (isSql(part)) {
      const [first = "", ...rest] = part.texts;
      texts.push(...[open + first, ...rest].slice(0, rest.length));
      open = (rest.at(-1) ?? open + first) + next;
      values.push(...part.values);
    } else {
      texts.push(open);
      values.push(part);
      open = next;
    }
  });
  return { texts: [...texts, open], values };
}

function isSql(part: SqlValue | Sql): part is Sql {
  return typeof part === "object" && part !== null && "texts" in part;
}

export type Row = Readonly<Record<string, unknown>>;

export interface Result {
  readonly rows: readonly Row[];

  /** Rows matched by a change, whether or not it changed them; not meaningful for reads. */
  readonly affected: number;

  /** The number that the statement passed through `Dialect.reply`, where there is such a thing. */
  readonly reply: bigint | undefined;
}

/** What the databases spell differently. */
export interface Dialect {
  readonly name: "mysql" | "sqlite";

  /** Whether a change of the schema commits the transaction it stands in. */
  readonly schemaCommits: boolean;

  /** Microseconds since 1970 by the database's clock; the same in all of one statement. */
  readonly now: Sql;

  /** In `onConflict`: what the INSERT wanted to put into `column`, where that was `value`. */
  proposed(column: "fence", value: Sql): Sql;

  /** Makes a change answer with the number that it stores; undefined where one has to read it. */
  readonly reply: ((number: Sql) => Sql) | undefined;

  /** Closes a SELECT so that it reads what is committed, and keeps it from changing until the end. */
  readonly shared: Sql;

  /** Closes a SELECT so that it reads what is committed, and keeps others from reading it so. */
  readonly exclusive: Sql;

  /** Closes an INSERT; followed by the assignments to make when the row with this key exists already. */
  onConflict(key: "name" | "resource" | "sku" | "version" | "shop" | "run_id" | "order_id"): Sql;
}

/**
 * A database of ours. It rejects with
 *
 * - a {@link StoreUnavailableError} when what was asked for has certainly not happened,
 * - a {@link StoreRefusedError} when trying again would not help,
 * - an {@link UnknownOutcomeError} when the answer was lost,
 * - a {@link DuplicateKeyError} when a unique key refused a row; nothing has happened.
 *
 * Transactions are read committed or stricter. The victim of a deadlock is repeated. A call without a
 * signal is given up after 10 seconds.
 */
export interface Database extends AsyncDisposable {
  /** Where it is, for messages: never with a secret. */
  readonly address: string;
  readonly dialect: Dialect;

  /** The statements as one transaction in one round trip; a lone statement is a transaction by itself. */
  packet(statements: readonly Sql[], signal?: AbortSignal): Promise<readonly Result[]>;

  /** One SELECT outside of any transaction. However its answer is lost, nothing has happened. */
  read(statement: Sql, signal?: AbortSignal): Promise<readonly Row[]>;

  /** A transaction of several round trips. What `body` does not commit is rolled back. */
  transaction<T>(body: (tx: Transaction) => Promise<T>, signal?: AbortSignal): Promise<T>;

  close(): Promise<void>;
}

/** Over with its first failure, its commit and its body: what is asked of it later is refused. */
export interface Transaction {
  /** Each packet is one round trip. */
  packet(statements: readonly Sql[]): Promise<readonly Result[]>;

  /** The last statements together with the COMMIT, in one round trip. */
  commit(statements: readonly Sql[]): Promise<readonly Result[]>;
}

export class DuplicateKeyError extends Error {
  override readonly name = "DuplicateKeyError";
}

/** A byte order mark is a character like any other here. */
const utf8 = new TextDecoder("utf-8", { ignoreBOM: true, fatal: true });

/** A text column's value: databases return bytes or text for it. */
export function asText(value: unknown): string {
  return value instanceof Uint8Array ? utf8.decode(value) : String(value);
}

/** An integer column's value, exactly. */
export function asBigInt(value: unknown): bigint {
  return BigInt(value as string | number | bigint);
}

/** An integer column's value. Throws a RangeError rather than round it. */
export function asNumber(value: unknown): number {
  const number = Number(value);
  if (!Number.isSafeInteger(number)) throw new RangeError(`${value} is not a safe integer`);
  return number;
}
