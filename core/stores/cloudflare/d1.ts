import type { Database, Row } from "../../database/sql.ts";
import { isSqliteMessage } from "./errors.ts";
import type { ObjectAnswer, ObjectCall } from "./object-calls.ts";
import { ObjectDatabase } from "./object-database.ts";
import { toResult } from "./query.ts";

/** The part of a D1 binding that Lockstep uses. */
export interface D1Binding {
  prepare(text: string): D1Statement;
  batch(statements: never[]): Promise<readonly D1Result[]>;
}

interface D1Statement {
  bind(...values: unknown[]): unknown;
}

interface D1Result {
  readonly results?: unknown;
  readonly meta: { readonly changes?: unknown };
}

/** Opens a D1 database, which executes batches alone: its transactions are refused. */
export function d1Database(binding: D1Binding): Database {
  return new ObjectDatabase("d1:", (call) => answerFromD1(binding, call), "d1");
}

/** Executes a call in one batch. */
export async function answerFromD1(
  binding: D1Binding,
  { queries, transaction }: ObjectCall,
): Promise<ObjectAnswer> {
  if (transaction) {
    const message =
      "D1 has no transactions of several calls; use a Durable Object (lockstepObject)";
    return { kind: "failed", message };
  }
  const statements = queries.map(({ text, values }) => {
    const statement = binding.prepare(text);
    return values === undefined ? statement : statement.bind(values);
  });
  try {
    const answers = await binding.batch(statements as never[]);
    const results = answers.map(({ results, meta }) =>
      toResult((results ?? []) as readonly Row[], Number(meta.changes ?? 0)),
    );
    return { kind: "done", results, seen: "", at: undefined };
  } catch (error) {
    const { message } = error as Error;
    if (isSqliteMessage(message)) return { kind: "failed", message };
    throw error;
  }
}
