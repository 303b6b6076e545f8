import type { Journal } from "../../../journal/journal.ts";
import { TurnOrder } from "../../../journal/turn-order.ts";
import { validatedJournal } from "../../../journal/validated.ts";
import { deadline, noAnswer, race } from "../../../lock/abort.ts";
import type { Millis } from "../../../lock/time.ts";
import type { Dynamodb } from "../client/dynamodb.ts";
import { claimDue } from "./claim-due.ts";
import { TableClock } from "./clock.ts";
import { Documents } from "./documents.ts";
import { dynamodbEntities } from "./entities.ts";
import { continueAsNew, finish, reopen } from "./finish.ts";
import { block, claimRun, park, renew, takeRun, wakeWaiting } from "./lease.ts";
import { readLimits, setLimits } from "./limits.ts";
import { purge } from "./purge.ts";
import { infoOf, list, queueDepths, show } from "./queries.ts";
import { append, latestOf, pageOf, readKept, readValues } from "./records.ts";
import { deleteItems, RUNS } from "./runs.ts";
import { cancelChildren, requestCancel, sendSignal } from "./signals.ts";
import { fork, startRuns } from "./start.ts";
import { startKeyed } from "./start-keyed.ts";
import { transact } from "./transactional-step.ts";

/** The longest wait for the deletion of an expired run, whose successor may have a lease already. The deletion goes on. */
const LONGEST_CLEAN_UP: Millis = 200;

/**
 * Opens the journal in a table of DynamoDB. The caller closes the client.
 *
 * Each write of a run is one transaction, refused if the run has changed. Where runs are found, by the time that they are
 * due and so on, is written in the same transaction.
 */
export function dynamodbJournal(dynamodb: Dynamodb): Journal {
  const clock = new TableClock();
  const runs = new Documents(dynamodb, clock, RUNS, async (before, after) => {
    if (before.instance >= after.instance) return;
    using limit = deadline(LONGEST_CLEAN_UP, noAnswer);
    await race(deleteItems(dynamodb, before), limit.signal);
  });
  const context = { dynamodb, clock, runs, turns: new TurnOrder() };
  return validatedJournal({
    address: dynamodb.address,
    transact: (run, step, body, signal) => transact(context, { ...step, run, body }, signal),
    entities: dynamodbEntities(dynamodb, clock),
    start: (all, parent, signal) => startRuns(context, all, parent, signal),
    claim: (claim, signal) => claimRun(context, claim, signal),
    startKeyed: (run, start, signal) => startKeyed(context, run, start, signal),
    take: (request, signal) => takeRun(context, request, signal),
    renew: (run, ttl, signal, inProgress) => renew(context, run, ttl, signal, inProgress),
    append: (run, record, signal) => append(context, run, record, signal),
    park: (run, request, signal) => park(context, run, request, signal),
    block: (run, request, signal) => block(context, run, request, signal),
    finish: (run, request, signal) => finish(context, run, request, signal),
    continueAsNew: (run, request) => continueAsNew(context, run, request),
    signal: (runId, signal) => sendSignal(context, runId, signal),
    cancel: (runId) => requestCancel(context, runId),
    cancelChildren: (runId) => cancelChildren(context, runId),
    reopen: (run, request) => reopen(context, run, request),
    fork: (origin, request) => fork(context, origin, request),
    claimDue: (query, signal) => claimDue(context, query, signal),
    setLimits: (queue, limits) => setLimits(context, queue, limits),
    limits: () => readLimits(context),
    queueDepths: () => queueDepths(context),
    list: (query = {}) => list(context, query),
    wakeWaiting: (lock) => wakeWaiting(context, lock),
    async find(runId) {
      const head = await readKept(context, runId);
      return head && infoOf(context, head);
    },
    async latest(runId, prefix) {
      const head = await readKept(context, runId);
      return head && latestOf(context, head, prefix);
    },
    show: (runId, page) => show(context, runId, page),
    async records(runId, page) {
      const head = await readKept(context, runId);
      return head ? pageOf(context, head, page) : { records: [], next: undefined };
    },
    async values(runId, keys) {
      const head = await readKept(context, runId);
      return head ? readValues(context, head, keys) : new Map();
    },
    purge: (limit) => purge(context, limit),
    close: async () => {},
    [Symbol.asyncDispose]: async () => {},
  });
}
