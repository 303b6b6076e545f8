import type { Journal } from "../journal/journal.ts";
import { StaleRunError } from "../journal/journal.ts";
import type { NewRecord, StepRecord } from "../journal/records.ts";
import type { RunSignal } from "../journal/runs.ts";
import { originalKey } from "../journal/superseded.ts";
import { wrongType } from "../lock/checks.ts";
import { originsIn, RunValues } from "./coded-journal.ts";
import type { RuntimeOptions } from "./contract.ts";
import { Envelopes } from "./envelope.ts";
import { EngineFailure, unknownRun, unreadableValue } from "./errors.ts";
import { readRun } from "./read-run.ts";
import { createRuntime } from "./runtime.ts";
import { isOfStep, stepKeyOf } from "./step-keys.ts";
import type { StepScope } from "./step-options.ts";
import type { AnyWorkflow } from "./workflow.ts";
import { withSteps } from "./wrap.ts";

/** The answer of `checkReplay`. */
export interface ReplayReport {
  /** The first difference between the code and the history. Undefined if open runs with this history can go on. */
  readonly divergence: string | undefined;

  /** The commands of the history in its order, then the first ones that the code would execute after it. */
  readonly commands: readonly {
    readonly key: string;
    readonly kind: StepRecord["kind"];
    readonly state: "same" | "missing" | "new";
  }[];
}

/** A history as JSON. Values stay encoded. */
interface RunHistory {
  readonly runId: string;
  readonly part: number;
  readonly workflow: string;
  readonly version: number;
  readonly input: string;
  readonly cancelled: boolean;
  readonly startedAt: string;
  readonly now: string;

  /** Undefined for an open run. */
  readonly status: string | undefined;
  readonly records: readonly (NewRecord & { readonly at: string })[];
  readonly signals: readonly (Omit<RunSignal, "at"> & { readonly at: string })[];
}

/**
 * Returns a run's history as JSON for `checkReplay`, with all inputs and results as the journal has them: those that a
 * codec has encoded stay encoded. Rejects with UNKNOWN_RUN.
 */
export async function exportRun(journal: Journal, runId: string): Promise<string> {
  if (!journal?.show) throw wrongType("journal", "the journal of a store", journal);
  const run = await readRun(journal, runId);
  if (!run) throw unknownRun(runId);
  const { part, workflow, version, input, cancelled, startedAt, now, ending } = run;
  const records: RunHistory["records"][number][] = [];
  for (const record of run.records) records.push(await toExported(journal, runId, record));
  const history: RunHistory = {
    ...{ runId, part, workflow, version, input, cancelled, status: ending?.status },
    startedAt: startedAt.toISOString(),
    now: now.toISOString(),
    records,
    signals: run.signals.map((signal) => ({ ...signal, at: signal.at.toISOString() })),
  };
  return JSON.stringify(history, undefined, 2);
}

/** Reads a large result of the record. */
async function toExported(
  journal: Journal,
  runId: string,
  { epoch: _, at, valueBytes, ...record }: StepRecord,
): Promise<RunHistory["records"][number]> {
  const { key } = record;
  const value =
    valueBytes === undefined ? record.value : (await journal.values(runId, [key])).get(key);
  return { ...record, value, at: at.toISOString() };
}

/**
 * Runs the workflow's code against a history that `exportRun` or `lockstep runs export` wrote, and tells whether runs
 * with this history could go on with this code. No step or undo is called, and nothing is written.
 *
 * Rejects with a TypeError for a history of another workflow or version, and with UNREADABLE_VALUE for a value
 * that `codec`, the codec of the runtime in production, does not decode.
 */
export async function checkReplay(
  workflow: AnyWorkflow,
  history: string,
  { codec }: Pick<RuntimeOptions, "codec"> = {},
): Promise<ReplayReport> {
  const stored: RunHistory = JSON.parse(history);
  const run = codec ? await openRun(stored, new Envelopes(codec)) : stored;
  if (run.workflow !== workflow.name || run.version !== workflow.version) {
    const [theirs, ours] = [run, { ...workflow, workflow: workflow.name }].map(
      (one) => `${one.workflow} version ${one.version}`,
    );
    throw new TypeError(`the history is one of ${theirs}, and the workflow is ${ours}`);
  }
  const replayed = new Set<string>();
  const replay = replayJournal(run);
  const runtime = createRuntime({
    journal: replay.journal,
    workflows: [withoutEffects(workflow, replay.reached)],
    lease: "1d",
    onEvent: (event) => void (event.type === "replayed" && replayed.add(event.key)),
  });
  const outcome = await runtime.resume(run.runId);
  const error = "error" in outcome ? outcome.error : undefined;
  if (error?.code === "UNREADABLE_VALUE") throw unreadableValue(error);
  const isDiverged = outcome.status === "blocked";
  // New work begins after the code has reached all commands of the history, also those that were in progress.
  const isReached = (key: string) => !isDiverged || replayed.has(key);
  const { status } = replay;
  const isOther = run.status !== undefined && status !== undefined && status !== run.status;
  const ended = `the run ended as ${run.status}, and would end as ${status}`;
  return {
    divergence: isDiverged
      ? outcome.error.message
      : isOther
        ? [ended, ...(error ? [error.message] : [])].join(": ")
        : undefined,
    commands: commandsOf(run, isReached, replay.reached),
  };
}

function openRun(run: RunHistory, envelopes: Envelopes): Promise<RunHistory> {
  return new RunValues(envelopes, run.runId, async () => originsIn(run.records)).run(run);
}

function commandsOf(
  { records }: RunHistory,
  isReached: (key: string) => boolean,
  live: ReadonlyMap<string, StepRecord["kind"]>,
): ReplayReport["commands"] {
  const current = records.filter((record) => isOfStep(record) && !originalKey(record.key));
  const known = new Map(current.map((record) => [stepKeyOf(record), record.kind]));
  const old = [...known].map(([key, kind]) => ({
    ...{ key, kind },
    state: isReached(key) ? ("same" as const) : ("missing" as const),
  }));
  const more = [...live].filter(([key]) => !known.has(key));
  return [...old, ...more.map(([key, kind]) => ({ key, kind, state: "new" as const }))];
}

/** Ends the execution at the first function of a step that is called: its result is not in the history. */
function withoutEffects(
  workflow: AnyWorkflow,
  reached: Map<string, StepRecord["kind"]>,
): AnyWorkflow {
  const stop = async () => {
    throw new EngineFailure(new StaleRunError({ runId: "replay", epoch: EPOCH }));
  };
  const fn = async (...args: readonly unknown[]) => {
    const { key } = args.at(-1) as StepScope;
    reached.set(key, "step");
    return stop();
  };
  return withSteps(workflow, () => ({ fn, undo: stop }));
}

const EPOCH = 1n;

/** Answers the claim of the run from its history, and refuses all writes but the end. */
function replayJournal(run: RunHistory) {
  const reached = new Map<string, StepRecord["kind"]>();
  const replay: { status: string | undefined } = { status: undefined };
  const { runId, part, workflow, version, input, cancelled } = run;
  const key = { runId, epoch: EPOCH };
  const refuse = async () => {
    throw new StaleRunError(key);
  };
  const parts: Partial<Journal> = {
    address: "replay:",
    wakeUps: undefined,
    async take() {
      return {
        kind: "claimed",
        signalsSeen: run.signals.length,
        ...{ epoch: EPOCH, part, workflow, version, input, cancelled },
        parent: undefined,
        crashes: 0,
        takenOver: false,
        // A blocked run's replay waits for less: in a test, code that has not come after seconds has changed.
        blocks: 1,
        records: run.records.map((record) => ({
          ...record,
          epoch: EPOCH,
          at: new Date(record.at),
        })),
        next: undefined,
        signals: run.signals.map((signal) => ({ ...signal, at: new Date(signal.at) })),
        startedAt: new Date(run.startedAt),
        now: new Date(run.now),
      };
    },
    async append(_, record) {
      if (isOfStep(record)) {
        reached.set(stepKeyOf(record), record.kind);
      }
      return refuse();
    },
    async transact(_, step) {
      reached.set(step.key, "tx");
      return refuse();
    },
    cancelChildren: async () => ({ open: [], compensated: "yes" }),
    park: async () => {},
    block: async () => {},
    async finish(_, { status }) {
      replay.status = status;
      return "ended";
    },
  };
  const journal = new Proxy(parts as Journal, {
    get: (target, name) => (name in target ? Reflect.get(target, name) : refuse),
  });
  return {
    journal,
    reached,
    get status() {
      return replay.status;
    },
  };
}
