import { checkClaim, claimAndRead } from "../../../database/claim.ts";
import { asBigInt, sql, type Transaction } from "../../../database/sql.ts";
import { transactionRefused } from "../../../journal/journal.ts";
import type { NewRecord, StepRecord, TransactionalStep } from "../../../journal/records.ts";
import type { RunKey } from "../../../journal/runs.ts";
import { race } from "../../../lock/abort.ts";
import { hasCode, quote } from "../../../lock/errors.ts";
import { retryUntilKnown } from "../../../lock/retry.ts";
import { LONGEST_CALL } from "../../../lock/time.ts";
import {
  existingRecord,
  insertRecord,
  isRefusal,
  readState,
  toState,
  toWritten,
  writtenAt,
} from "./append.ts";
import type { SqlJournalContext } from "./context.ts";
import { commitWith, toLargeValue } from "./large-values.ts";
import type { PendingWrite, WrittenRecord } from "./order.ts";
import { partOf } from "./rows.ts";
import { checkLimit, stepTransaction } from "./step-transaction.ts";

/** A step with its run and its body. */
export interface StepRequest extends TransactionalStep {
  readonly run: RunKey;
  body(tx: Transaction): Promise<NewRecord>;
}

/**
 * Commits the body's changes and its record in one transaction.
 *
 * Repeats the transaction after a lost answer until the record exists. The record's unique key allows one commit. The
 * caller's signal bounds the call with its body; without a signal, 10 seconds.
 */
export async function transact(
  context: SqlJournalContext,
  step: StepRequest,
  signal: AbortSignal | undefined,
): Promise<StepRecord> {
  const what = `step ${quote(step.key)} of run ${quote(step.run.runId)} was committed`;
  const patience = signal ? Number.POSITIVE_INFINITY : LONGEST_CALL;
  using write = context.order.write(step.run);
  const once = (limit: AbortSignal) => attempt(context, step, write, limit);
  try {
    // An attempt includes the body, so it has no limit of its own.
    const all = { patience, attempt: patience };
    const written = await retryUntilKnown(context.database.address, what, signal, once, all);
    context.lastWrites.raise(step.run, written.at);
    return await write.deliver(written);
  } catch (error) {
    throw error instanceof BodyError ? error.cause : error;
  }
}

/** Wraps the body's error, which may look like a store's error. */
class BodyError extends Error {}

/** Resolves to undefined if the transaction has to be repeated. */
async function attempt(
  context: SqlJournalContext,
  step: StepRequest,
  write: PendingWrite,
  limit: AbortSignal,
): Promise<WrittenRecord | undefined> {
  const { database } = context;
  let isCommitting = false;
  try {
    return await database.transaction(async (tx) => {
      // The database repeats the body, and has rolled back its last commit.
      if (isCommitting) write.cancel();
      isCommitting = false;
      const before = await begin(context, tx, step);
      if (before) return before;
      const record = await runBody(context, tx, step, limit);
      isCommitting = true;
      write.begin();
      return commit(context, tx, step, record);
    }, limit);
  } catch (error) {
    if (!isCommitting || !isRefusal(error)) throw error;
    const found = await existingRecord(database, step.run, step.key, limit);
    if (found) return found;
    // A constraint of the step's own rows that the database has checked at the COMMIT.
    const { message } = error as Error;
    throw new BodyError("", { cause: transactionRefused(message, error) });
  }
}

/**
 * Claims the fences in an order that all holders share, and reads the record if it exists.
 *
 * Does not lock the run's row: the holder renews its lease over another connection during the body.
 */
async function begin(
  { database, lastWrites }: SqlJournalContext,
  tx: Transaction,
  { run, key, fences }: StepRequest,
): Promise<WrittenRecord | undefined> {
  const { dialect } = database;
  const claims = fences
    .toSorted((a, b) => (a.resource < b.resource ? -1 : 1))
    .map((fence) => ({ fence, statements: claimAndRead(dialect, fence) }));
  const rows = (
    await tx.batch([
      ...claims.flatMap(({ statements }) => statements),
      readState(dialect, run, key),
      ...(lastWrites.get(run) === undefined ? [readLastAt(run)] : []),
    ])
  ).map((result) => result.rows);
  const claimed = claims.map(({ statements }) => rows.splice(0, statements.length).at(-1) ?? []);
  const [state = [], last] = rows;
  const before = toState(run, state);
  if (before) return before;
  claims.forEach(({ fence }, i) => {
    checkClaim(fence, claimed[i] ?? []);
  });
  if (last) lastWrites.record(run, asBigInt(last[0]?.last));
  return undefined;
}

function readLastAt({ runId }: RunKey) {
  return sql`
    SELECT COALESCE(MAX(at), 0) AS last FROM lockstep_step
    WHERE run_id = ${runId} AND part = ${partOf(runId)}`;
}

/** Runs the body until its limit. Rejects with the transaction's own failure if the body ignores it. */
async function runBody(
  { database: { address } }: SqlJournalContext,
  tx: Transaction,
  { body }: StepRequest,
  limit: AbortSignal,
): Promise<NewRecord> {
  const { tx: own, failure } = stepTransaction(tx, address, limit);
  try {
    const record = await race(body(own), limit);
    if (failure() !== undefined) throw ignored(failure());
    checkLimit(address, limit);
    return record;
  } catch (error) {
    checkLimit(address, limit);
    if (hasCode(failure(), "UNKNOWN_OUTCOME", "STORE_UNAVAILABLE")) throw failure();
    throw new BodyError("", { cause: error });
  }
}

/** A step that catches the error of its statement has failed all the same: nothing can be committed after it. */
function ignored(failure: unknown): Error {
  const { message } = failure as Error;
  return transactionRefused(
    `a statement of the step's transaction failed, and the step ignored it: ${message}`,
    failure,
  );
}

/** Inserts the record and commits, in one batch unless the result is very large. The insert fails if this holder has lost the run. */
async function commit(
  context: SqlJournalContext,
  tx: Transaction,
  { run }: StepRequest,
  record: NewRecord,
): Promise<WrittenRecord> {
  const large = toLargeValue(run, record);
  const last = context.lastWrites.get(run);
  const insert = insertRecord(context.database.dialect, run, record, last, large);
  const results = await commitWith(tx, large, insert);
  return toWritten(context, run, record, writtenAt(results), large);
}
