import type { Database } from "../../../database/sql.ts";
import type { Journal } from "../../../journal/journal.ts";
import { TurnOrder } from "../../../journal/turn-order.ts";
import { validatedJournal } from "../../../journal/validated.ts";
import { announced } from "./announced.ts";
import { append } from "./append.ts";
import { BacklogCache } from "./backlogs.ts";
import { claimRun, takeRun } from "./claim.ts";
import { claimDue } from "./claim-due.ts";
import { LastWriteTimes } from "./context.ts";
import { continueAsNew } from "./continue.ts";
import { sqlEntities } from "./entities/index.ts";
import { Finisher } from "./finish.ts";
import { fork } from "./fork.ts";
import { readValues } from "./large-values.ts";
import { block, park, renew, wakeWaiting } from "./lease.ts";
import { readLimits, setLimits } from "./limits.ts";
import { AnswerOrder } from "./order.ts";
import { readPage } from "./pages.ts";
import { purge } from "./purge.ts";
import { find, latest, list, queueDepths, show } from "./queries.ts";
import { reopen } from "./reopen.ts";
import { cancelChildren, requestCancel, sendSignal } from "./signals.ts";
import { startRuns } from "./start.ts";
import { startKeyed } from "./start-keyed.ts";
import { transact } from "./transactional-step.ts";

/**
 * Opens the journal in a SQL database. The caller closes the database.
 *
 * Times are the database's, and each write is one round trip. The holder of a run writes to it through one journal.
 */
export function sqlJournal(database: Database): Journal {
  const context = {
    database,
    lastWrites: new LastWriteTimes(),
    order: new AnswerOrder(),
    turns: new TurnOrder(),
    backlogs: new BacklogCache(),
  };
  const { due, wakeUps } = database.notices
    ? announced(database, database.notices)
    : { due: database, wakeUps: undefined };
  const finisher = new Finisher(database, due);
  return validatedJournal({
    address: database.address,
    wakeUps,
    start: (runs, parent, signal) => startRuns({ ...context, database: due }, runs, parent, signal),
    claim: (claim, signal) => claimRun(context, claim, signal),
    startKeyed: (run, start, signal) => startKeyed(due, run, start, signal),
    take: (request, signal) => takeRun(context, request, signal),
    renew: (run, ttl, signal, inProgress) => renew(database, run, ttl, signal, inProgress),
    append: (run, record, signal) => append(context, run, record, signal),
    transact: (run, step, body, signal) => transact(context, { ...step, run, body }, signal),
    park: (run, request, signal) =>
      park(request.wakeIn === 0 ? due : database, run, request, signal),
    block: (run, request, signal) => block(database, run, request, signal),
    finish: (run, request, signal) => finisher.finish(run, request, signal),
    continueAsNew: (run, request) => continueAsNew(due, run, request),
    signal: (runId, signal) => sendSignal(due, runId, signal),
    cancel: (runId) => requestCancel(due, runId),
    cancelChildren: (runId) => cancelChildren(due, runId),
    reopen: (run, request) => reopen(due, run, request),
    fork: (origin, request) => fork(due, origin, request),
    claimDue: (query, signal) => claimDue(context, query, signal),
    setLimits: (queue, limits) => setLimits(due, queue, limits),
    limits: () => readLimits(database),
    queueDepths: () => queueDepths(database),
    list: (query = {}) => list(database, query),
    find: (runId) => find(database, runId),
    wakeWaiting: (lock) => wakeWaiting(due, lock),
    latest: (runId, prefix) => latest(database, runId, prefix),
    show: (runId, page) => show(database, runId, page),
    records: (runId, page) => readPage(database, runId, page),
    values: (runId, keys) => readValues(database, runId, keys),
    entities: sqlEntities(database),
    purge: (limit) => purge(database, limit),
    close: async () => {},
    [Symbol.asyncDispose]: async () => {},
  });
}
