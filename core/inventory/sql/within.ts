import { claim } from "../../database/claim.ts";
import {
  type Database,
  type Dialect,
  type Sql,
  sql,
  type Transaction,
} from "../../database/sql.ts";
import type { Answer, OrderAnswer } from "../inventory.ts";
import type { Batch, Operation } from "../operation.ts";
import { attempt } from "./apply.ts";
import { plan } from "./batch.ts";
import { expireReservations } from "./expiry.ts";

/** An open transaction, as far as it can stand in for its database. */
export type Inside = Pick<Database, "dialect" | "packet" | "read">;

export function inside(dialect: Dialect, tx: Pick<Transaction, "packet">): Inside {
  return {
    dialect,
    packet: (statements) => tx.packet(statements),
    read: async (statement) => (await tx.packet([statement]))[0]?.rows ?? [],
  };
}

/**
 * Does the operation in the transaction. The stock's row is locked first: whoever did the same operation before
 * has committed, and is seen.
 */
export async function applyWithin(tx: Inside, operation: Operation): Promise<Answer> {
  const { sku, fence } = operation;
  const lock = sql`SELECT sku FROM lockstep_stock WHERE sku = ${sku} ${tx.dialect.exclusive}`;
  const database = beginningWith(tx, [...(fence ? [claim(tx.dialect, fence)] : []), lock]);
  const claimed = new WeakSet(fence ? [fence] : []);
  for (;;) {
    const answer = await attempt({ database, claimed }, operation);
    if (answer) return answer;
  }
}

export async function applyManyWithin(tx: Inside, batch: Batch): Promise<readonly OrderAnswer[]> {
  for (;;) {
    const { writes, answers } = await plan(tx.dialect, tx, batch);
    if (writes.length > 0) await tx.packet(writes);
    if (answers) return answers;
    await expireReservations(tx, batch.sku);
  }
}

/** The first packet has these statements in front. */
function beginningWith(tx: Inside, statements: readonly Sql[]): Inside {
  let first = statements;
  return {
    ...tx,
    async packet(rest) {
      const before = first;
      first = [];
      return (await tx.packet([...before, ...rest])).slice(before.length);
    },
  };
}
