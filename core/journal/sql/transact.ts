import { checkClaim, claim, readClaim } from "../../database/claim.ts";
import { asBigInt, sql, type Transaction } from "../../database/sql.ts";
import { race } from "../../lock/abort.ts";
import { hasCode, quote } from "../../lock/errors.ts";
import type { Fence } from "../../lock/fence.ts";
import { insist } from "../../lock/insist.ts";
import { LONGEST_CALL } from "../../lock/time.ts";
import type { NewRecord, RunKey, StepRecord, TransactedStep } from "../journal.ts";
import {
  insert,
  isRefusal,
  readAt,
  readState,
  standing,
  toAt,
  toState,
  written,
} from "./append.ts";
import { checkLimit, inside } from "./inside.ts";
import type { Turn, Written } from "./order.ts";
import type { Place } from "./place.ts";

/** What is to be done in one transaction. */
export interface Work extends TransactedStep {
  readonly run: RunKey;
  body(tx: Transaction): Promise<NewRecord>;
}

/**
 * Commits what the body does together with its record, or neither.
 *
 * Whatever was lost on the way, all of it is repeated until the record stands: its key lets it be committed once.
 * The caller's signal bounds it, body included; without one, 10 seconds do.
 */
export async function transact(
  place: Place,
  work: Work,
  signal: AbortSignal | undefined,
): Promise<StepRecord> {
  const what = `step ${quote(work.key)} of run ${quote(work.run.runId)} was committed`;
  const patience = signal ? Number.POSITIVE_INFINITY : LONGEST_CALL;
  using turn = place.order.turn(work.run);
  const once = (limit: AbortSignal) => attempt(place, work, turn, limit);
  try {
    return await turn.of(await insist(place.database.address, what, signal, once, patience));
  } catch (error) {
    throw error instanceof Thrown ? error.cause : error;
  }
}

/** What the body rejected with: the caller's own, whatever it looks like. */
class Thrown extends Error {}

/** Resolves to undefined when it is worth trying again. */
async function attempt(
  place: Place,
  work: Work,
  turn: Turn,
  limit: AbortSignal,
): Promise<Written | undefined> {
  const { database } = place;
  let isCommitting = false;
  try {
    return await database.transaction(async (tx) => {
      isCommitting = false;
      const before = await begin(place, tx, work);
      if (before) return before;
      const record = await perform(place, tx, work, limit);
      isCommitting = true;
      turn.begin();
      return commit(place, tx, work, record);
    }, limit);
  } catch (error) {
    if (isCommitting && isRefusal(error)) {
      return standing(database, work.run, work.key, error, limit);
    }
    if (isCommitting || !hasCode(error, "UNKNOWN_OUTCOME")) throw error;
    // The connection was lost before the commit: there will be none.
    checkLimit(database.address, limit);
    return undefined;
  }
}

/**
 * Claims the fences, in an order that all holders share, and then looks what there is already.
 *
 * The run's row is not locked: its holder renews it over another connection while the body goes on.
 */
async function begin(
  { database, lastAt }: Place,
  tx: Transaction,
  { run, key, fences }: Work,
): Promise<Written | undefined> {
  const sorted = fences.toSorted((a, b) => (a.resource < b.resource ? -1 : 1));
  const results = await tx.packet([
    ...sorted.flatMap((fence) => [claim(database.dialect, fence), readClaim(fence)]),
    readState(run, key),
    ...(lastAt.get(run) === undefined ? [readLastAt(run)] : []),
  ]);
  const [state, last] = results.slice(2 * sorted.length).map(({ rows }) => rows);
  const before = toState(run, state ?? []);
  if (before) return before;
  sorted.forEach((fence: Fence, i) => {
    checkClaim(fence, results[2 * i + 1]?.rows ?? []);
  });
  if (last) lastAt.note(run, asBigInt(last[0]?.last));
  return undefined;
}

function readLastAt({ runId }: RunKey) {
  return sql`SELECT COALESCE(MAX(at), 0) AS last FROM lockstep_step WHERE run_id = ${runId}`;
}

/** The body neither keeps the transaction open beyond its limit, nor goes on where it has ended under it. */
async function perform(
  { database: { address } }: Place,
  tx: Transaction,
  { body }: Work,
  limit: AbortSignal,
): Promise<NewRecord> {
  const { tx: own, failure } = inside(tx, address, limit);
  try {
    const record = await race(body(own), limit);
    if (failure() !== undefined) throw failure();
    checkLimit(address, limit);
    return record;
  } catch (error) {
    checkLimit(address, limit);
    if (hasCode(failure(), "UNKNOWN_OUTCOME", "STORE_UNAVAILABLE")) throw failure();
    throw new Thrown("", { cause: error });
  }
}

/** The record, refused if the run has moved on, and the COMMIT in the same packet. */
async function commit(
  place: Place,
  tx: Transaction,
  { run, key }: Work,
  record: NewRecord,
): Promise<Written> {
  const { dialect } = place.database;
  const more = dialect.reply ? [] : [readAt(run, key)];
  const results = await tx.commit([insert(dialect, run, record, place.lastAt.get(run)), ...more]);
  return written(place, run, record, toAt(results));
}
