import type { Sql, Transaction } from "../../database/sql.ts";
import { StoreUnavailableError } from "../../lock/errors.ts";

/** A transaction as the body of a step gets it. */
export interface Inside {
  readonly tx: Transaction;

  /** What ended it under the body, if anything did. */
  failure(): unknown;
}

/** The part of a transaction that is the body's: it can neither end it nor use it beyond its limit. */
export function inside(tx: Transaction, address: string, limit: AbortSignal): Inside {
  let failure: unknown;
  return {
    failure: () => failure,
    tx: {
      async packet(statements) {
        for (const statement of statements) checkStatement(statement);
        checkLimit(address, limit);
        try {
          return await tx.packet(statements);
        } catch (error) {
          failure ??= error;
          throw error;
        }
      },
      async commit() {
        throw new TypeError("a step's transaction is committed with its record, when it returns");
      },
    },
  };
}

/** Throws where the caller has given up. Nothing has happened then. */
export function checkLimit(address: string, limit: AbortSignal): void {
  if (!limit.aborted) return;
  throw new StoreUnavailableError(address, "the step was given up before its commit", limit.reason);
}

/** What stands before the first word. What MySQL takes for more than a comment is not a comment here. */
const BLANK = /^(?:\s|\(|\/\*(?!!|M!).*?\*\/|--[^\n]*\n|#[^\n]*\n)*/s;

/** Anything else may end the transaction in MySQL: a procedure, a change of the schema, a setting. */
const ALLOWED = /^(?:select|insert|update|delete|replace|with|values|explain|show)\b/i;

const LITERALS = /'(?:[^']|'')*'|"(?:[^"]|"")*"|`[^`]*`/g;

function checkStatement({ texts }: Sql): void {
  const text = texts.join("?");
  if (!ALLOWED.test(text.replace(BLANK, ""))) {
    const [start = ""] = text.trim().split(/\s/);
    throw new TypeError(
      `a step's transaction reads and changes rows, nothing else: not ${start.slice(0, 32)}`,
    );
  }
  if (text.replace(LITERALS, "").includes(";")) {
    throw new TypeError("a packet is a list of statements, not one text with semicolons");
  }
}
