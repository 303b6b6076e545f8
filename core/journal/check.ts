import { checkSpan, checkText, checkWhole } from "../lock/checks.ts";
import { checkFence } from "../lock/fence.ts";
import type { Millis } from "../lock/time.ts";
import {
  type Claim,
  type Ending,
  type Journal,
  LONGEST_VALUE,
  type NewRecord,
  type Parking,
  type RunKey,
  type Take,
} from "./journal.ts";

/** The longest id or name, in bytes of UTF-8; the key of a record may be twice as long. */
const LONGEST_ID = 255;
const LONGEST_KEY = 512;
const LONGEST_HASH = 128;
const LONGEST_FENCES = 65_535;

/** 100 years: in microseconds after 1970 it is still an exact number. */
const LONGEST_WAIT: Millis = 100 * 366 * 86_400_000;

const HIGHEST_VERSION = 2 ** 31 - 1;
const MOST_RUNS = 10_000;

/** The journal, which gets nothing to see that it could not write down, or that is given up already. */
export function checked(journal: Journal): Journal {
  const { transact } = journal;
  return {
    address: journal.address,

    async claim(claim, signal) {
      checkClaim(claim);
      signal?.throwIfAborted();
      return journal.claim(claim, signal);
    },

    async take(take, signal) {
      checkTake(take);
      signal?.throwIfAborted();
      return journal.take(take, signal);
    },

    async renew(run, ttl, signal) {
      checkRun(run);
      checkSpan("ttl", ttl, 1);
      signal?.throwIfAborted();
      return journal.renew(run, ttl, signal);
    },

    async append(run, record, signal) {
      checkRun(run);
      checkRecord(record);
      signal?.throwIfAborted();
      return journal.append(run, record, signal);
    },

    transact:
      transact &&
      (async (run, work, body, signal) => {
        checkRun(run);
        checkText("record key", work.key, LONGEST_KEY);
        for (const fence of work.fences) checkFence(fence, fence?.resource);
        const checkedBody: typeof body = async (tx) => {
          const record = await body(tx);
          checkRecord(record);
          if (record.key === work.key) return record;
          throw new RangeError(`the record's key must be ${work.key}, not ${record.key}`);
        };
        signal?.throwIfAborted();
        return transact(run, work, checkedBody, signal);
      }),

    async park(run, parking, signal) {
      checkRun(run);
      checkParking(parking);
      signal?.throwIfAborted();
      return journal.park(run, parking, signal);
    },

    async finish(run, ending, signal) {
      checkRun(run);
      checkEnding(ending);
      signal?.throwIfAborted();
      return journal.finish(run, ending, signal);
    },

    async signal(runId, signal) {
      checkId("run id", runId);
      checkId("signal name", signal.name);
      checkId("dedupe id", signal.dedupeId);
      checkValue("payload", signal.payload);
      return journal.signal(runId, signal);
    },

    async cancel(runId) {
      checkId("run id", runId);
      return journal.cancel(runId);
    },

    async due(query, signal) {
      checkWhole("limit", query.limit, 1, MOST_RUNS);
      for (const { workflow, version } of query.workflows) checkWorkflow(workflow, version);
      signal?.throwIfAborted();
      return query.workflows.length === 0 ? [] : journal.due(query, signal);
    },

    async list(query = {}) {
      const { workflow, limit = 100 } = query;
      if (workflow !== undefined) checkId("workflow", workflow);
      checkWhole("limit", limit, 1, MOST_RUNS);
      return journal.list({ ...query, limit });
    },

    async show(runId) {
      checkId("run id", runId);
      return journal.show(runId);
    },

    async purge(limit) {
      checkWhole("limit", limit, 1, Number.MAX_SAFE_INTEGER);
      return journal.purge(limit);
    },

    close: () => journal.close(),
    [Symbol.asyncDispose]: () => journal.close(),
  };
}

function checkClaim(claim: Claim): void {
  checkTake(claim);
  checkWorkflow(claim.workflow, claim.version);
  checkValue("input", claim.input);
  if (!/^[0-9a-f]{64}$/.test(claim.inputHash)) {
    throw new RangeError("inputHash must be 64 hexadecimal digits in lower case");
  }
  if (claim.parent) {
    checkId("parent's run id", claim.parent.runId);
    checkId("parent's signal", claim.parent.signal);
  }
}

function checkTake({ runId, owner, ttl }: Take): void {
  checkId("run id", runId);
  checkId("owner", owner);
  checkSpan("ttl", ttl, 1);
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
  if (record.value !== undefined) checkValue("value", record.value);
  if (record.argsHash !== undefined) checkText("argsHash", record.argsHash, LONGEST_HASH);
  if (record.fence !== undefined) checkText("fence", record.fence, LONGEST_FENCES);
  if (record.took !== undefined) checkSpan("took", record.took, 0, LONGEST_WAIT);
  if (record.waited !== undefined) checkSpan("waited", record.waited, 0, LONGEST_WAIT);
}

function checkParking({ wakeIn, signalsSeen }: Parking): void {
  if (wakeIn !== Number.POSITIVE_INFINITY) checkSpan("wakeIn", wakeIn, 0, LONGEST_WAIT);
  checkWhole("signalsSeen", signalsSeen, 0, Number.MAX_SAFE_INTEGER);
}

function checkEnding({ value, keep }: Ending): void {
  checkValue("value", value);
  if (keep !== Number.POSITIVE_INFINITY) checkSpan("keep", keep, 0, LONGEST_WAIT);
}

function checkId(what: string, id: string): void {
  checkText(what, id, LONGEST_ID);
}

const utf8 = new TextEncoder();

/** Unlike an id, it may be empty and contain NUL. */
function checkValue(what: string, value: unknown): void {
  if (typeof value !== "string") {
    throw new TypeError(`${what} must be an encoded string, not ${typeof value}`);
  }
  if (!value.isWellFormed()) throw new RangeError(`${what} is not valid Unicode`);
  const bytes = utf8.encode(value).length;
  if (bytes > LONGEST_VALUE) {
    throw new RangeError(`${what} has ${bytes} bytes, the limit is ${LONGEST_VALUE}`);
  }
}
