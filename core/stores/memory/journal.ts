import { encodeChildResult, worstOf } from "../../journal/child-result.ts";
import { type Journal, MOST_FORKS, StaleRunError } from "../../journal/journal.ts";
import { largeResult } from "../../journal/large-result.ts";
import { Admission, costOf, type LimitedQueue, type QueueLimits } from "../../journal/limits.ts";
import type { RunInfo } from "../../journal/queries.ts";
import type { StepRecord } from "../../journal/records.ts";
import {
  isDebounced,
  type NewRun,
  type NewSignal,
  type RunClaimResult,
  type RunKey,
  type RunLeaseRequest,
  type RunResult,
  type RunStatus,
} from "../../journal/runs.ts";
import { supersededPrefix } from "../../journal/superseded.ts";
import { TurnOrder } from "../../journal/turn-order.ts";
import { unknownCursor, validatedJournal } from "../../journal/validated.ts";
import { memoryEntities } from "./entities.ts";
import {
  after,
  create,
  details,
  info,
  isDue,
  pageOf,
  type Run,
  requestCancel,
  stateOf,
  toNewRun,
  unreceived,
  wake,
} from "./run.ts";

/** Opens a journal in this process's memory: the reference implementation. */
export function memoryJournal(): Journal {
  const runs = new Map<string, Run>();
  const turns = new TurnOrder();
  const queueLimits = new Map<string, QueueLimits>();

  /** By queue, the time until which its claims have used its rate. */
  const nextClaims = new Map<string, number>();

  /** The same by queue and key. */
  const nextOfKeys = new Map<string, Map<string, number>>();
  const started = new Map<string, string>();
  let lastEpoch = 0n;

  const find = (runId: string): Run | undefined => {
    const run = runs.get(runId);
    return run && !(run.ending && isDue(run)) ? run : undefined;
  };

  const add = (claim: NewRun, origin?: RunInfo["origin"]): Run => {
    const run = create(claim, origin);
    // An expired run with the same id has an older position in the map.
    runs.delete(run.runId);
    runs.set(run.runId, run);
    return run;
  };

  const held = ({ runId, epoch }: RunKey): Run => {
    const run = find(runId);
    if (run?.epoch === epoch && run.status === "running") return run;
    throw new StaleRunError({ runId, epoch });
  };

  const hasStatus = ({ runId, epoch }: RunKey, ...statuses: readonly RunStatus[]) => {
    const run = find(runId);
    return run?.epoch === epoch && statuses.includes(run.status);
  };

  /** Whether the last holder has written a record. */
  const hasWritten = ({ epoch, records }: Run) =>
    [...records.values()].some((record) => record.epoch === epoch);

  /** Whether the run was taken over from a process that was lost, and nobody has written a record since. */
  const isTakenOver = (run: Run) => run.takenOver && !hasWritten(run);

  const take = (run: Run, { owner, ttl }: Omit<RunLeaseRequest, "runId">): RunClaimResult => {
    if (run.ending || !isDue(run)) return stateOf(run);
    const { status } = run;
    const isCrash = status === "running" && !hasWritten(run);
    const isKept = isCrash || status === "blocked";
    lastEpoch += 1n;
    Object.assign(run, {
      status: "running",
      epoch: lastEpoch,
      owner,
      reason: undefined,
      inProgress: [],
      ...after(ttl),
      crashes: isKept ? run.crashes + (isCrash ? 1 : 0) : 0,
      takenOver: status === "running" || isTakenOver(run),
      blocks: isKept ? run.blocks : 0,
      error: undefined,
      knownCancelled: run.cancelled,
      changedAt: new Date(),
    } satisfies Partial<Run>);
    const { epoch, part, workflow, version, input, parent, startedAt } = run;
    const { crashes, blocks, cancelled } = run;
    const { records, next, signals } = { ...pageOf(run), signals: unreceived(run) };
    const signalsSeen = run.signals.length;
    const begun = {
      epoch,
      part,
      signalsSeen,
      workflow,
      version,
      input,
      parent,
      startedAt,
      now: new Date(),
      takenOver: run.takenOver,
    };
    return { kind: "claimed", ...begun, crashes, blocks, cancelled, records, next, signals };
  };

  /** Adds a signal to the run, unless the run has it. */
  const receive = ({ signals }: Run, { name, dedupeId, payload }: NewSignal): boolean => {
    if (signals.some((one) => one.name === name && one.dedupeId === dedupeId)) return false;
    signals.push({ number: signals.length + 1, name, dedupeId, payload, at: new Date() });
    return true;
  };

  const send = (runId: string, signal: NewSignal) => {
    const run = find(runId);
    if (!run) return "missing";
    if (run.ending) return "ended";
    if (!receive(run, signal)) return "duplicate";
    run.lastSent = run.signals.length;
    if (!isDebounced(run)) wake(run);
    return "delivered";
  };

  /** Reopens a failed parent whose child has ended once more. */
  const correctParent = ({ detached, status }: Run, parent: Run) => {
    const isFailed = parent.status === "failed" || parent.status === "cancelled";
    if (isFailed && !detached && status !== "completed") open(parent);
  };

  /** Makes a run due that has ended or is blocked. */
  const open = (run: Run) => {
    lastEpoch += 1n;
    const takenOver = isTakenOver(run);
    const counts = { crashes: 0, takenOver, blocks: 0, error: undefined, ending: undefined };
    const parked = { status: "parked", reason: undefined, childrenWait: undefined } as const;
    Object.assign(run, parked, counts, { epoch: lastEpoch, changedAt: new Date(), ...after(0) });
  };

  const tellParent = (child: Run, ending: RunResult) => {
    const parent = child.parent && find(child.parent.runId);
    if (!child.parent || !parent) return;
    const payload = encodeChildResult(ending);
    const signal = { name: child.parent.signal, dedupeId: child.runId, payload };
    if (!receive(parent, signal)) return correctParent(child, parent);
    const isBatched = parent.status === "parked" && parent.childrenWait;
    const { at, within } = isBatched || { at: 0, within: 0 };
    wake(parent, parent.signals.length >= at ? 0 : within);
  };

  /** The use of the limited queues. */
  const use = (): ReadonlyMap<string, LimitedQueue> => {
    const executed = [...runs.values()].filter((run) => run.status === "running" && !isDue(run));
    return new Map(
      [...queueLimits].map(([queue, limits]) => {
        const own = Map.groupBy(
          executed.filter((run) => run.queue === queue),
          ({ key }) => key,
        );
        const running = new Map([...own].map(([key, { length }]) => [key, length]));
        const now = performance.now();
        const aheadBy = (nextClaims.get(queue) ?? 0) - now;
        const ofKeys = [...(nextOfKeys.get(queue) ?? [])];
        const keysAheadBy = new Map(ofKeys.map(([key, next]) => [key, next - now]));
        return [queue, { ...limits, running, aheadBy, keysAheadBy }];
      }),
    );
  };

  const countClaim = ({ queue, key }: Run) => {
    const { rate, ratePerKey } = queueLimits.get(queue) ?? {};
    const from = (next = 0) => Math.max(next, performance.now());
    if (rate) nextClaims.set(queue, from(nextClaims.get(queue)) + costOf(rate));
    if (ratePerKey === undefined || key === undefined) return;
    const ofKeys = nextOfKeys.get(queue) ?? new Map<string, number>();
    nextOfKeys.set(queue, ofKeys.set(key, from(ofKeys.get(key)) + costOf(ratePerKey)));
  };

  return validatedJournal({
    address: "memory:",
    entities: memoryEntities(),
    transact: undefined,

    async start(claims, parent) {
      if (parent) held(parent);
      return claims.map((claim) => {
        const run = find(claim.runId) ?? add(claim);
        if (run.workflow !== claim.workflow || run.inputHash !== claim.inputHash) {
          return { kind: "conflict" };
        }
        return { parent: run.parent, ...stateOf(run) };
      });
    },

    async claim(claim) {
      const known = find(claim.runId);
      if (known && (known.workflow !== claim.workflow || known.inputHash !== claim.inputHash)) {
        return { kind: "conflict" };
      }
      return take(known ?? add(claim), claim);
    },

    async startKeyed(claim, { key, quiet }) {
      const at = JSON.stringify([claim.workflow, key]);
      const last = find(started.get(at) ?? "");
      const isOwn = last?.runId === claim.runId;
      const waits = last && isDebounced(last) && !last.cancelled;
      const isSame = isOwn || (quiet === undefined ? !last?.ending : waits);
      const run = last && isSame ? last : create(claim);
      runs.set(run.runId, run);
      started.set(at, run.runId);
      if (quiet !== undefined && !isOwn) {
        const { version, input, inputHash, queue, key: turnKey, priority } = create(claim);
        const latest = { version, input, inputHash, queue, key: turnKey, priority };
        Object.assign(run, latest, { reason: "debounce" as const, ...after(quiet) });
      }
      return { runId: run.runId, cancelled: run.cancelled, ...stateOf(run) };
    },

    async take(request) {
      const run = find(request.runId);
      return run ? take(run, request) : { kind: "missing" };
    },

    async renew(key, ttl, _, inProgress = []) {
      if (!hasStatus(key, "running")) return undefined;
      const run = held(key);
      run.inProgress = inProgress;
      if (performance.now() + ttl > run.until) Object.assign(run, after(ttl));
      return { cancelled: run.cancelled, signals: run.signals.length };
    },

    async append(key, record) {
      const { records } = held(key);
      const known = records.get(record.key);
      if (known) return known;
      const written = {
        ...record,
        valueBytes: largeResult(record)?.length,
        epoch: key.epoch,
        at: new Date(),
      };
      records.set(record.key, written);
      return written;
    },

    async park(key, { reason, wakeIn, signalsSeen, lock, children }) {
      if (hasStatus(key, "parked")) return;
      const run = held(key);
      const childrenWait = children && {
        at: signalsSeen + children.count,
        within: children.within,
      };
      const { signals, lastSent } = run;
      const isWoken =
        lastSent > signalsSeen ||
        signals.length >= (childrenWait?.at ?? signalsSeen + 1) ||
        run.cancelled !== run.knownCancelled;
      const hasEnded = signals.length > signalsSeen;
      const longest = hasEnded ? Math.min(wakeIn, childrenWait?.within ?? 0) : wakeIn;
      const due = after(isWoken ? 0 : longest);
      Object.assign(run, {
        status: "parked",
        reason,
        waitsFor: lock,
        childrenWait,
        blocks: 0,
        ...due,
        changedAt: new Date(),
      });
    },

    async wakeWaiting(lock) {
      const woken = performance.now() - 1_000;
      // In the order of their creation.
      const waiting = [...runs.values()].find(
        (run) => run.status === "parked" && run.waitsFor === lock && run.until > woken,
      );
      if (waiting) wake(waiting);
      return waiting !== undefined;
    },

    async block(key, { error, blocks, retryIn }) {
      if (hasStatus(key, "blocked")) return;
      const run = held(key);
      const due = after(run.cancelled !== run.knownCancelled ? 0 : retryIn);
      Object.assign(run, { status: "blocked", error, blocks, ...due, changedAt: new Date() });
    },

    async finish(key, { status, value, compensated, keep }) {
      if (hasStatus(key, "completed", "failed", "cancelled")) return "ended";
      const isRefused = status === "completed" && find(key.runId)?.cancelled === true;
      if (isRefused && hasStatus(key, "parked")) return "cancelled";
      const run = held(key);
      if (isRefused) {
        const parked = { status: "parked", reason: "deadline", ...after(0) } as const;
        Object.assign(run, parked, { changedAt: new Date() });
        return "cancelled";
      }
      const ending = { status, value, compensated, at: new Date() };
      Object.assign(run, { status, ending, ...after(keep), changedAt: ending.at });
      tellParent(run, ending);
      return "ended";
    },

    async continueAsNew(key, { part, input, received }) {
      const known = find(key.runId);
      if (known && known.part > part) return "continued";
      if (known?.cancelled && hasStatus(key, "parked")) return "cancelled";
      const run = held(key);
      const parked = { status: "parked", ...after(0), changedAt: new Date() } as const;
      if (run.cancelled) {
        Object.assign(run, parked, { reason: "deadline" });
        return "cancelled";
      }
      for (const number of received) run.received.add(number);
      const counts = { crashes: 0, takenOver: false, blocks: 0 };
      const begun = { part: part + 1, input, startedAt: new Date(), ...counts };
      const histories = { earlier: run.records, records: new Map() };
      Object.assign(run, parked, begun, histories, { reason: undefined });
      return "continued";
    },

    signal: async (runId, signal) => send(runId, signal),

    async cancel(runId) {
      const run = find(runId);
      if (!run) return "missing";
      if (run.ending) return "ended";
      requestCancel(run);
      return "requested";
    },

    async cancelChildren(runId) {
      const isChild = (run: Run) => run.parent?.runId === runId && !run.detached;
      const children = [...runs.values()].filter((run) => isChild(run) && find(run.runId));
      const open = children.filter(({ ending }) => !ending);
      for (const run of open) requestCancel(run);
      const compensated = worstOf(children.flatMap(({ ending }) => ending?.compensated ?? []));
      return { open: open.map((run) => run.runId), compensated };
    },

    async setLimits(queue, limits) {
      const isUnlimited = Object.values(limits).every((limit) => limit === undefined);
      if (isUnlimited) queueLimits.delete(queue);
      else queueLimits.set(queue, limits);
      nextClaims.delete(queue);
      nextOfKeys.delete(queue);
    },

    limits: async () => new Map(queueLimits),

    async reopen({ runId, epoch }, { supersede, isRetry }) {
      const run = find(runId);
      const isUnderWay = run?.status === "running" || run?.status === "parked";
      if (!run || run.epoch !== epoch || isUnderWay) return false;
      const old = new Set(supersede);
      const renamed = [...run.records.values()].map((record): [string, StepRecord] => {
        const key = old.has(record.key) ? `${supersededPrefix(epoch)}${record.key}` : record.key;
        return [key, { ...record, key }];
      });
      run.records.clear();
      for (const [key, record] of renamed) run.records.set(key, record);
      const cancelled = run.cancelled && run.status === "blocked";
      open(run);
      if (isRetry) Object.assign(run, { cancelled, startedAt: new Date() });
      return true;
    },

    async fork({ runId: originId, epoch }, { runId, step, keep, supersede, signals, mark }) {
      const known = find(runId);
      if (known) {
        const { origin } = known;
        return origin?.runId === originId && origin.step === step ? "forked" : "conflict";
      }
      const origin = find(originId);
      if (origin?.epoch !== epoch) return "changed";
      const run = add({ ...toNewRun(origin), runId }, { runId: originId, step });
      const [kept, old, received] = [new Set(keep), new Set(supersede), new Set(signals)];
      for (const record of origin.records.values()) {
        const key = old.has(record.key) ? `${supersededPrefix(epoch)}${record.key}` : record.key;
        if (kept.has(key) || key !== record.key) run.records.set(key, { ...record, key });
      }
      run.part = origin.part;
      run.records.set(mark.key, { ...mark, epoch, at: new Date() });
      const copied = origin.signals.filter(({ number }) => received.has(number));
      run.signals.push(...copied.map((signal, i) => ({ ...signal, number: i + 1 })));
      return "forked";
    },

    async claimDue({ workflows, queues, limit, except = [], parent, onHeldBack, ...request }) {
      const isWanted = (run: Run) =>
        queues.includes(run.queue) &&
        workflows.some((one) => one.workflow === run.workflow && one.version === run.version) &&
        !except.includes(run.runId) &&
        (parent === undefined || run.parent?.runId === parent);
      const due = [...runs.values()].filter((run) => !run.ending && isDue(run) && isWanted(run));
      const waiting = due.map((run) => ({ run, ...run, dueAt: run.until }));
      const admission = new Admission(use());
      const admitted = admission.take(turns.sort(waiting), limit);
      if (Number.isFinite(admission.retryIn)) onHeldBack?.(admission.retryIn);
      return admitted.flatMap((next) => {
        countClaim(next.run);
        const claimed = take(next.run, request);
        turns.taken(next);
        return claimed.kind === "claimed" ? [{ ...claimed, runId: next.runId }] : [];
      });
    },

    async queueDepths() {
      const open = [...runs.values()].filter(({ ending }) => !ending);
      return [...Map.groupBy(open, ({ queue }) => queue)].map(([queue, all]) => {
        const count = (status: RunStatus) => all.filter((run) => run.status === status).length;
        const oldest = Math.min(...all.map(({ until }) => until));
        return {
          queue,
          running: count("running"),
          parked: count("parked"),
          blocked: count("blocked"),
          due: all.filter(isDue).length,
          oldestDueFor: Math.max(0, performance.now() - oldest),
        };
      });
    },

    async list({ workflow, status, queue, key, after, limit } = {}) {
      const newest = [...runs.values()].reverse();
      const at = after === undefined ? 0 : newest.findIndex(({ runId }) => runId === after) + 1;
      if (after !== undefined && at === 0) throw unknownCursor(after);
      return newest
        .slice(at)
        .filter((run) => find(run.runId))
        .filter((run) => run.workflow === (workflow ?? run.workflow))
        .filter((run) => run.status === (status ?? run.status))
        .filter((run) => run.queue === (queue ?? run.queue) && run.key === (key ?? run.key))
        .slice(0, limit)
        .map(info);
    },

    async find(runId) {
      const run = find(runId);
      return run && info(run);
    },

    async records(runId, page) {
      const run = find(runId);
      return run ? pageOf(run, page) : { records: [], next: undefined };
    },

    async values(runId, keys) {
      const records = find(runId)?.records;
      const wanted = keys.flatMap((key) => records?.get(key) ?? []);
      return new Map(wanted.map(({ key, value = "" }) => [key, value]));
    },

    async latest(runId, prefix) {
      const run = find(runId);
      const records = run ? [...run.earlier.values(), ...run.records.values()] : [];
      return records.findLast(({ key }) => key.startsWith(prefix));
    },

    async show(runId, page) {
      const run = find(runId);
      const forks = [...runs.values()].filter((one) => one.origin?.runId === runId);
      return run && details(run, forks.slice(0, MOST_FORKS), page);
    },

    async purge(limit) {
      const expired = [...runs.keys()].filter((runId) => !find(runId)).slice(0, limit);
      for (const runId of expired) runs.delete(runId);
      for (const [at, runId] of started) if (!runs.has(runId)) started.delete(at);
      for (const next of nextOfKeys.values()) {
        for (const [key, at] of next) if (at <= performance.now()) next.delete(key);
      }
      return expired.length;
    },

    close: async () => {},
    [Symbol.asyncDispose]: async () => {},
  });
}
