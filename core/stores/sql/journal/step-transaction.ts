import type { Sql, Transaction } from "../../../database/sql.ts";
import { StoreUnavailableError } from "../../../lock/errors.ts";

/** A transaction as the body of a step gets it. */
export interface StepTransaction {
  readonly tx: Transaction;

  /** The first error of the transaction. Undefined without one. */
  failure(): unknown;
}

/** Restricts a transaction for a step's body, which can neither end it nor use it after `limit`. */
export function stepTransaction(
  tx: Transaction,
  address: string,
  limit: AbortSignal,
): StepTransaction {
  let failure: unknown;
  return {
    failure: () => failure,
    tx: {
      async batch(statements) {
        for (const statement of statements) checkStatement(statement);
        checkLimit(address, limit);
        try {
          return await tx.batch(statements);
        } catch (error) {
          failure ??= error;
          throw error;
        }
      },
      async commit() {
        throw new TypeError("a step cannot commit its transaction; the step's return commits it");
      },
    },
  };
}

/** Throws a StoreUnavailableError if the caller's signal has aborted. Nothing has happened then. */
export function checkLimit(address: string, limit: AbortSignal): void {
  if (!limit.aborted) return;
  throw new StoreUnavailableError(address, "the step was aborted before its commit", limit.reason);
}

/** White space, comments and parentheses before the first word. MySQL executes /*! and /*M! comments. */
const BLANK = /^(?:\s|\(|\/\*(?!!|M!).*?\*\/|--[^\n]*\n|#[^\n]*\n)*/s;

/** Other statements may end the transaction in MySQL: procedures, changes of the schema, settings. */
const ALLOWED = /^(?:select|insert|update|delete|replace|with|values|explain|show)\b/i;

const LITERALS = /'(?:[^']|'')*'|"(?:[^"]|"")*"|`[^`]*`/g;

/** Throws a TypeError for a statement that may end a transaction. */
export function checkStatement({ texts }: Sql): void {
  const text = texts.join("?");
  if (!ALLOWED.test(text.replace(BLANK, ""))) {
    const [start = ""] = text.trim().split(/\s/);
    throw new TypeError(
      `a step's transaction takes statements that read or change rows, not ${start.slice(0, 32)}`,
    );
  }
  if (text.replace(LITERALS, "").includes(";")) {
    throw new TypeError(
      "a statement must not contain a semicolon; pass several statements as a list",
    );
  }
}
