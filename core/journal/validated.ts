import { checkSpan, checkText, checkWhole, wrongType } from "../lock/checks.ts";
import { toMillis } from "../lock/duration.ts";
import { quote } from "../lock/errors.ts";
import { checkFence } from "../lock/fence.ts";
import { checkOptionNames, type OptionNames } from "../lock/options.ts";
import type { Millis } from "../lock/time.ts";
import type { ForkRequest, ParkRequest } from "./changes.ts";
import { LONGEST_CHILD_RESULT, parentStepOf } from "./child-result.ts";
import { notifyingJournal } from "./due-listeners.ts";
import { type Journal, MOST_IN_PROGRESS } from "./journal.ts";
import type { QueueLimits } from "./limits.ts";
import type { DueQuery } from "./queries.ts";
import {
  LONGEST_RESULT,
  LONGEST_VALUE,
  type NewRecord,
  RECORDS_PER_PAGE,
  type RecordPage,
} from "./records.ts";
import type { FinishRequest, NewRun, RunClaim, RunKey, RunLeaseRequest } from "./runs.ts";
import { checkTurn } from "./turn-order.ts";

/** The longest id or name in bytes of UTF-8. A record's key joins several, so it may be longer. */
const LONGEST_ID = 255;
const LONGEST_KEY = 512;
/** A record's key and its time. */
const LONGEST_CURSOR = LONGEST_KEY + 32;
const LONGEST_LOCK = 512;
const LONGEST_HASH = 128;
const LONGEST_FENCES = 65_535;

/** 100 years. In microseconds after 1970, a date within them is still an exact number. */
const LONGEST_WAIT: Millis = 100 * 366 * 86_400_000;

const HIGHEST_VERSION = 2 ** 31 - 1;
const MOST_RUNS = 10_000;
const MOST_STARTED = 1_000;

/** A claim reads the histories of all runs that it claims. */
const MOST_CLAIMED = 1_000;

const HIGHEST_LIMIT = 1_000_000;

/** A day: products of a span in microseconds and a number of runs are exact. */
const LONGEST_RATE: Millis = 86_400_000;

/** Returns the error for a cursor whose run does not exist. */
export function unknownCursor(runId: string): RangeError {
  return new RangeError(`after must be the id of a run; ${quote(runId)} does not exist any more`);
}

/** Returns the error for a text that is no cursor. */
export function unknownPage(after: string): RangeError {
  return new RangeError(`after must be \`next\` of a page of records, not ${quote(after)}`);
}

/** Wraps a journal: rejects bad input and aborted calls before any I/O. */
export function validatedJournal(journal: Omit<Journal, "dueListeners">): Journal {
  const { transact } = journal;
  return notifyingJournal({
    address: journal.address,
    wakeUps: journal.wakeUps,
    entities: journal.entities,

    async start(runs, parent, signal) {
      if (parent) checkRun(parent);
      checkWhole("the number of runs", runs.length, 0, MOST_STARTED);
      for (const run of runs) checkNewRun(run);
      checkDistinct(runs);
      signal?.throwIfAborted();
      return runs.length === 0 ? [] : journal.start(runs, parent, signal);
    },

    async claim(claim, signal) {
      checkClaim(claim);
      signal?.throwIfAborted();
      return journal.claim(claim, signal);
    },

    async startKeyed(run, start, signal) {
      checkNewRun(run);
      checkId("key", start.key);
      if (start.quiet !== undefined) checkSpan("quiet", start.quiet, 0, LONGEST_WAIT);
      signal?.throwIfAborted();
      return journal.startKeyed(run, start, signal);
    },

    async take(request, signal) {
      checkLeaseRequest(request);
      signal?.throwIfAborted();
      return journal.take(request, signal);
    },

    async renew(run, ttl, signal, inProgress = []) {
      checkRun(run);
      checkSpan("ttl", ttl, 1);
      checkWhole("the number of steps in progress", inProgress.length, 0, MOST_IN_PROGRESS);
      signal?.throwIfAborted();
      return journal.renew(run, ttl, signal, inProgress);
    },

    async append(run, record, signal) {
      checkRun(run);
      checkRecord(record);
      signal?.throwIfAborted();
      return journal.append(run, record, signal);
    },

    transact:
      transact &&
      (async (run, step, body, signal) => {
        checkRun(run);
        checkText("record key", step.key, LONGEST_KEY);
        for (const fence of step.fences) checkFence(fence, fence?.resource);
        const checkedBody: typeof body = async (tx) => {
          const record = await body(tx);
          checkRecord(record);
          if (record.key === step.key) return record;
          throw new RangeError(`the record's key must be ${step.key}, not ${record.key}`);
        };
        signal?.throwIfAborted();
        return transact(run, step, checkedBody, signal);
      }),

    async park(run, request, signal) {
      checkRun(run);
      checkParkRequest(request);
      signal?.throwIfAborted();
      return journal.park(run, request, signal);
    },

    async block(run, request, signal) {
      checkRun(run);
      checkValue("error", request.error);
      checkWhole("blocks", request.blocks, 1, HIGHEST_VERSION);
      checkSpan("retryIn", request.retryIn, 0, LONGEST_WAIT);
      signal?.throwIfAborted();
      return journal.block(run, request, signal);
    },

    async finish(run, request, signal) {
      checkRun(run);
      checkFinishRequest(request);
      signal?.throwIfAborted();
      return journal.finish(run, request, signal);
    },

    async continueAsNew(run, request) {
      checkRun(run);
      checkWhole("part", request.part, 1, HIGHEST_VERSION);
      checkValue("input", request.input);
      return journal.continueAsNew(run, request);
    },

    async signal(runId, signal) {
      checkId("run id", runId);
      checkId("signal name", signal.name);
      checkId("dedupe id", signal.dedupeId);
      const isChild = parentStepOf(signal.name) !== undefined;
      checkValue("payload", signal.payload, isChild ? LONGEST_CHILD_RESULT : LONGEST_VALUE);
      return journal.signal(runId, signal);
    },

    async cancel(runId) {
      checkId("run id", runId);
      return journal.cancel(runId);
    },

    async cancelChildren(runId) {
      checkId("run id", runId);
      return journal.cancelChildren(runId);
    },

    async reopen(run, request) {
      checkRun(run);
      for (const key of request.supersede) checkText("record key", key, LONGEST_KEY);
      return journal.reopen(run, request);
    },

    async fork(origin, request) {
      checkRun(origin);
      checkForkRequest(request);
      return journal.fork(origin, request);
    },

    async claimDue(query, signal) {
      checkDueQuery(query);
      if (query.parent !== undefined) checkId("parent", query.parent);
      signal?.throwIfAborted();
      const { workflows, queues } = query;
      return workflows.length * queues.length === 0 ? [] : journal.claimDue(query, signal);
    },

    async setLimits(queue, limits) {
      checkId("queue", queue);
      return journal.setLimits(queue, checkLimits(limits));
    },

    limits: () => journal.limits(),

    queueDepths: () => journal.queueDepths(),

    async list(query = {}) {
      if (typeof query !== "object" || query === null) {
        throw wrongType("the query", "an object such as { workflow }", query);
      }
      const { workflow, queue, key, after, limit = 100 } = query;
      for (const [what, id] of Object.entries({ workflow, queue, key, after })) {
        if (id !== undefined) checkId(what, id);
      }
      checkWhole("limit", limit, 1, MOST_RUNS);
      return journal.list({ ...query, limit });
    },

    async wakeWaiting(lock) {
      checkText("lock", lock, LONGEST_LOCK);
      return journal.wakeWaiting(lock);
    },

    async find(runId) {
      checkId("run id", runId);
      return journal.find(runId);
    },

    async latest(runId, prefix) {
      checkId("run id", runId);
      checkText("record key", prefix, LONGEST_KEY);
      return journal.latest(runId, prefix);
    },

    async show(runId, page = {}) {
      checkId("run id", runId);
      checkPage(page);
      return journal.show(runId, page);
    },

    async records(runId, page) {
      checkId("run id", runId);
      checkPage(page);
      return journal.records(runId, page);
    },

    async values(runId, keys) {
      checkId("run id", runId);
      for (const key of keys) checkText("record key", key, LONGEST_KEY);
      return keys.length === 0 ? new Map() : journal.values(runId, keys);
    },

    async purge(limit) {
      checkWhole("limit", limit, 1, Number.MAX_SAFE_INTEGER);
      const runs = await journal.purge(limit);
      return runs < limit ? runs + (await journal.entities.purge(limit - runs)) : runs;
    },

    close: () => journal.close(),
    [Symbol.asyncDispose]: () => journal.close(),
  });
}

function checkClaim(claim: RunClaim): void {
  checkLeaseRequest(claim);
  checkNewRun(claim);
}

function checkNewRun(run: NewRun): void {
  const { runId, owner, workflow, version, input, inputHash, parent, turn = {} } = run;
  checkTurn(turn);
  checkId("run id", runId);
  checkId("owner", owner);
  checkWorkflow(workflow, version);
  checkValue("input", input);
  if (!/^[0-9a-f]{64}$/.test(inputHash)) {
    throw new RangeError("inputHash must be 64 hexadecimal digits in lower case");
  }
  if (parent) {
    checkId("parent's run id", parent.runId);
    checkId("parent's signal", parent.signal);
  }
}

function checkDistinct(runs: readonly NewRun[]): void {
  const seen = new Set<string>();
  for (const { runId } of runs) {
    if (seen.has(runId)) throw new RangeError(`two runs have the id ${quote(runId)}`);
    seen.add(runId);
  }
}

function checkLeaseRequest(request: RunLeaseRequest): void {
  checkId("run id", request.runId);
  checkHolder(request);
}

function checkHolder({ owner, ttl }: Omit<RunLeaseRequest, "runId">): void {
  checkId("owner", owner);
  checkSpan("ttl", ttl, 1);
}

function checkDueQuery(query: DueQuery): void {
  checkHolder(query);
  checkWhole("limit", query.limit, 1, MOST_CLAIMED);
  for (const { workflow, version } of query.workflows) checkWorkflow(workflow, version);
  for (const queue of query.queues) checkId("queue", queue);
  for (const runId of query.except ?? []) checkId("run id", runId);
}

const LIMITS = {
  concurrency: true,
  perKey: true,
  rate: true,
  ratePerKey: true,
} satisfies OptionNames<QueueLimits>;

/** Returns the limits with spans in milliseconds. */
function checkLimits(limits: QueueLimits): QueueLimits {
  if (typeof limits !== "object" || limits === null) {
    throw wrongType("limits", "an object such as { concurrency: 5 }", limits);
  }
  checkOptionNames("setLimits", limits, LIMITS);
  const { concurrency, perKey, rate, ratePerKey } = limits;
  if (concurrency !== undefined) checkWhole("concurrency", concurrency, 1, HIGHEST_LIMIT);
  if (perKey !== undefined) checkWhole("perKey", perKey, 1, HIGHEST_LIMIT);
  return {
    ...{ concurrency, perKey },
    rate: rate === undefined ? undefined : checkRate("rate", rate),
    ratePerKey: ratePerKey === undefined ? undefined : checkRate("ratePerKey", ratePerKey),
  };
}

function checkRate(name: string, rate: NonNullable<QueueLimits["rate"]>) {
  if (typeof rate !== "object" || rate === null) {
    throw wrongType(name, 'an object such as { runs: 10, per: "1s" }', rate);
  }
  checkOptionNames(name, rate, { runs: true, per: true });
  const { runs, per } = rate;
  checkWhole(`${name}.runs`, runs, 1, HIGHEST_LIMIT);
  return { runs, per: toMillis(`${name}.per`, per, 1, LONGEST_RATE) };
}

function checkWorkflow(workflow: string, version: number): void {
  checkId("workflow", workflow);
  checkWhole("version", version, 0, HIGHEST_VERSION);
}

function checkRun({ runId, epoch }: RunKey): void {
  checkId("run id", runId);
  if (typeof epoch !== "bigint") throw new TypeError(`epoch must be a bigint, not ${epoch}`);
}

function checkRecord(record: NewRecord): void {
  checkText("record key", record.key, LONGEST_KEY);
  checkWhole("attempt", record.attempt, 1, HIGHEST_VERSION);
  const longest = record.outcome === "ok" ? LONGEST_RESULT : LONGEST_VALUE;
  if (record.value !== undefined) checkValue("value", record.value, longest);
  if (record.argsHash !== undefined) checkText("argsHash", record.argsHash, LONGEST_HASH);
  if (record.fence !== undefined) checkText("fence", record.fence, LONGEST_FENCES);
  if (record.took !== undefined) checkSpan("took", record.took, 0, LONGEST_WAIT);
  if (record.waited !== undefined) checkSpan("waited", record.waited, 0, LONGEST_WAIT);
}

function checkPage(page: RecordPage): void {
  checkOptionNames("a page", page, PAGE);
  const { part = 1, after, limit = 1 } = page;
  checkWhole("part", part, 1, HIGHEST_VERSION);
  if (after !== undefined) checkText("after", after, LONGEST_CURSOR);
  checkWhole("limit", limit, 1, RECORDS_PER_PAGE);
}

const PAGE = { part: true, after: true, limit: true } satisfies OptionNames<RecordPage>;

function checkParkRequest({ wakeIn, signalsSeen, lock, children }: ParkRequest): void {
  if (lock !== undefined) checkText("lock", lock, LONGEST_LOCK);
  if (wakeIn !== Number.POSITIVE_INFINITY) checkSpan("wakeIn", wakeIn, 0, LONGEST_WAIT);
  checkWhole("signalsSeen", signalsSeen, 0, Number.MAX_SAFE_INTEGER);
  if (!children) return;
  checkWhole("children.count", children.count, 1, HIGHEST_VERSION);
  checkSpan("children.within", children.within, 0, LONGEST_WAIT);
}

function checkForkRequest({ runId, owner, step, keep, supersede, signals, mark }: ForkRequest) {
  checkId("run id", runId);
  checkId("owner", owner);
  checkText("step", step, LONGEST_KEY);
  for (const key of [...keep, ...supersede]) checkText("record key", key, LONGEST_KEY);
  for (const number of signals) checkWhole("signal", number, 1, Number.MAX_SAFE_INTEGER);
  checkRecord(mark);
}

function checkFinishRequest({ value, keep }: FinishRequest): void {
  checkValue("value", value);
  if (keep !== Number.POSITIVE_INFINITY) checkSpan("keep", keep, 0, LONGEST_WAIT);
}

function checkId(what: string, id: string): void {
  checkText(what, id, LONGEST_ID);
}

const utf8 = new TextEncoder();

/** Of a UTF-16 unit in UTF-8. */
const MOST_BYTES = 3;

/** Checks an encoded value. Unlike an id, it may be empty and contain NUL. */
function checkValue(what: string, value: unknown, longest = LONGEST_VALUE): void {
  if (typeof value !== "string") {
    throw new TypeError(`${what} must be an encoded string, not ${typeof value}`);
  }
  if (!value.isWellFormed())
    throw new RangeError(`${what} must be valid Unicode; it has a lone surrogate`);
  if (MOST_BYTES * value.length <= longest) return;
  const bytes = utf8.encode(value).length;
  if (bytes > longest) {
    throw new RangeError(`${what} has ${bytes} bytes, the limit is ${longest}`);
  }
}
