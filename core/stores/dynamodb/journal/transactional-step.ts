import type { Transaction } from "../../../database/sql.ts";
import { transactionRefused } from "../../../journal/journal.ts";
import type { NewRecord, StepRecord, TransactionalStep } from "../../../journal/records.ts";
import type { RunKey } from "../../../journal/runs.ts";
import { deadline, race, sleep } from "../../../lock/abort.ts";
import { hasCode, quote, StoreUnavailableError } from "../../../lock/errors.ts";
import { backoff } from "../../../lock/retry.ts";
import { elapsedSince, instant, LONGEST_CALL } from "../../../lock/time.ts";
import {
  ItemTransaction,
  type Part,
  REPEAT,
  type Refusal,
  type WriteAttempt,
} from "../client/transaction.ts";
import { claimWithin, fencedOut, raiseClaim } from "../inventory/fence.ts";
import { keyPlace, planRecord, readRecord, valueIn } from "./records.ts";
import { type Head, held, type JournalContext } from "./runs.ts";

/** A step with its run and its body. */
interface StepRequest extends TransactionalStep {
  readonly run: RunKey;
  body(tx: Pick<Transaction, "batch">): Promise<NewRecord>;
}

/** The most writes of a body: a transaction has 100 items, with the run, the record and its key. */
const MOST_WRITES = 97;

/**
 * Writes what the body has added and its record in one transaction. The body is repeated when its stock has changed.
 *
 * The fences are claimed before the body, so that an earlier holder changes nothing that it has read, and again in the
 * transaction.
 */
export async function transact(
  context: JournalContext,
  step: StepRequest,
  signal: AbortSignal | undefined,
): Promise<StepRecord> {
  const { address } = context.dynamodb;
  const patience = signal ? Number.POSITIVE_INFINITY : LONGEST_CALL;
  const late = () => new StoreUnavailableError(address, "no answer");
  using limit = deadline(patience, late, signal);
  let record = await begin(context, step, limit.signal);
  let lastAttempt: WriteAttempt | undefined;
  for (let count = 0; record === undefined; count += 1) {
    const begunAt = instant();
    const tx = new ItemTransaction(address, limit.signal, lastAttempt);
    record = await attempt(context, step, tx);
    lastAttempt = { span: elapsedSince(begunAt), contested: tx.contested };
    if (!record) await sleep(backoff(count), limit.signal);
  }
  return record;
}

/** A transaction that was refused. */
class RefusedError extends Error {
  readonly answer: Refusal;

  constructor(answer: Refusal) {
    super("the transaction was refused");
    this.answer = answer;
  }
}

/**
 * Claims the fences, unless the record exists: resolves to it then.
 *
 * The run is written as it is: an earlier transaction of this step whose answer was lost is refused from now on.
 */
async function begin(
  context: JournalContext,
  step: StepRequest,
  signal?: AbortSignal,
): Promise<StepRecord | undefined> {
  const { dynamodb, runs } = context;
  const { run, key, fences } = step;
  let head: Head | undefined;
  const begun = runs.change<undefined>({
    ids: [run.runId],
    what: `step ${quote(key)} of run ${quote(run.runId)} was begun`,
    signal,
    fromMemory: true,
    plan([found], now) {
      head = held(found, run, now);
      // Deletes nothing.
      const unwritten = { key: keyPlace(head, key), when: "attribute_not_exists(#pk)" };
      return {
        docs: [{ ...head }],
        writes: [unwritten, ...fences.map(raiseClaim)],
        result: undefined,
        refused(answer) {
          throw new RefusedError(answer);
        },
      };
    },
  });
  try {
    return await begun;
  } catch (error) {
    if (!(error instanceof RefusedError) || !head) throw error;
    const [isWritten, ...areLate] = error.answer.failed;
    if (isWritten) {
      const record = await readRecord(dynamodb, head, key);
      if (record) return record;
      // The items of a transaction are not seen all at once.
      await sleep(backoff(0), signal);
      return begin(context, step, signal);
    }
    const late = areLate.indexOf(true);
    const fence = fences[late];
    throw fence ? fencedOut(fence, error.answer.items[late + 1] ?? {}) : error;
  }
}

/** Resolves to undefined if the body has to be repeated. */
async function attempt(
  context: JournalContext,
  step: StepRequest,
  tx: ItemTransaction,
): Promise<StepRecord | undefined> {
  for (const fence of step.fences) claimWithin(tx, fence);
  const record = await runBody(tx, step);
  return record && commit(context, step, { parts: tx.parts, record }, tx.signal);
}

/** Runs the body until its limit. Rejects with the transaction's own failure if the body ignores it. */
async function runBody(tx: ItemTransaction, { body }: StepRequest): Promise<NewRecord | undefined> {
  try {
    const record = await race(body(tx), tx.signal);
    await tx.end();
    if (tx.failure !== undefined) throw tx.failure;
    return record;
  } catch (error) {
    await tx.end();
    const { failure } = tx;
    if (tx.signal.aborted) {
      const problem = "the step was aborted before its commit";
      throw new StoreUnavailableError(tx.address, problem, tx.signal.reason);
    }
    if (failure === REPEAT) return undefined;
    throw hasCode(failure, "UNKNOWN_OUTCOME", "STORE_UNAVAILABLE") ? failure : error;
  }
}

interface Body {
  readonly parts: readonly Part[];
  readonly record: NewRecord;
}

/** Resolves to undefined if the transaction was refused and the body has to be repeated. */
async function commit(
  context: JournalContext,
  step: StepRequest,
  { parts, record }: Body,
  signal: AbortSignal,
): Promise<StepRecord | undefined> {
  const { run, key } = step;
  const added = parts.map((part) => part.writes());
  const writes = added.flat();
  if (writes.length > MOST_WRITES) {
    const problem = `a step's transaction has at most ${MOST_WRITES} writes, not ${writes.length}`;
    throw transactionRefused(problem);
  }
  const stored = await valueIn(context, run, record, signal);
  let sent = 0;
  let refusal: Refusal | undefined;
  const changed = context.runs.change<StepRecord | undefined>({
    ids: [run.runId],
    what: `step ${quote(key)} of run ${quote(run.runId)} was committed`,
    signal,
    fromMemory: true,
    async plan([found], now) {
      const head = held(found, run, now);
      // An attempt before it may be on its way: it is refused once the run has changed.
      if (refusal) return { docs: [{ ...head }], result: undefined };
      const text = { ...record, ...(await stored(head)) };
      sent += 1;
      const planned = planRecord(head, run, text, record.value, now, (answer) => {
        refusal = answer;
        if (sent === 1) throw new RefusedError(answer);
      });
      return { ...planned, writes: [...writes, ...(planned.writes ?? [])] };
    },
  });
  const written = await changed.catch((error) => {
    if (error instanceof RefusedError) return undefined;
    // Nothing of Lockstep's is refused here: the step has just begun in the same table.
    throw hasCode(error, "STORE_REFUSED") ? transactionRefused(error.message, error) : error;
  });
  if (written) return written;
  // The key of the record comes last.
  if (refusal?.failed.at(-1)) return begin(context, step);
  let from = 0;
  for (const [i, part] of parts.entries()) {
    const to = from + (added[i]?.length ?? 0);
    const [failed, items] = [refusal?.failed.slice(from, to), refusal?.items.slice(from, to)];
    if (failed?.includes(true) && items) part.refused({ failed, items });
    from = to;
  }
  return undefined;
}
