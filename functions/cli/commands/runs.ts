import { randomUUID } from "node:crypto";
import type { Argv, CommandModule } from "yargs";
import { decodeChildResult, parentStepOf } from "../../../core/journal/child-result.ts";
import {
  RECORDS_PER_PAGE,
  type RunDetails,
  type RunInfo,
  type RunResult,
  type RunSignal,
  type RunStatus,
  type StepRecord,
} from "../../../core/journal/journal.ts";
import { checkSpan, checkText, checkWhole } from "../../../core/lock/checks.ts";
import type { OpenStore } from "../../../core/lock/open-store.ts";
import type { Runtime } from "../../../core/steps/contract.ts";
import { unknownRun } from "../../../core/steps/errors.ts";
import { exportRun } from "../../../core/steps/replay-check.ts";
import { isEnded, runAtEnd } from "../../../core/steps/run-end.ts";
import { createRuntime } from "../../../core/steps/runtime.ts";
import { shownFailure, shownResult, shownValue } from "../../json/shown-value.ts";
import { loadWorkflowModule } from "../../worker/workflow-module.ts";
import { EXIT } from "../exit-status.ts";
import { holdersFor } from "../holders.ts";
import { parseJson, toJson } from "../json.ts";
import {
  jsonOption,
  locksOption,
  parseDuration,
  parseInteger,
  type StoreArgs,
  storeOption,
} from "../options.ts";
import { listenForShutdown } from "../process/signals.ts";
import {
  type CallArgs,
  callOptions,
  codecOf,
  MODULE_HELP,
  type ModuleArgs,
  moduleOption,
  type RuntimeArgs,
  runtimeOptions,
  withCalls,
  withRuntime,
} from "../runtime.ts";
import { withLocks, withStore, withStoreToRead } from "../store.ts";
import { drawRun } from "../terminal/draw-run.ts";
import { formatDuration } from "../terminal/duration.ts";
import { reportOutcome, showEvent } from "../terminal/outcome.ts";
import { print } from "../terminal/output.ts";
import { table } from "../terminal/table.ts";
import { traceOf } from "../terminal/trace.ts";
import { limitsCommand } from "./limits.ts";

export const runsCommand: CommandModule = {
  command: "runs <action>",
  describe: "Show runs of workflows, and resume, cancel, retry, fork or signal them",
  builder: (yargs) =>
    yargs
      .command(listCommand)
      .command(showCommand)
      .command(exportCommand)
      .command(resumeCommand)
      .command(cancelCommand)
      .command(retryCommand)
      .command(retryUndoCommand)
      .command(forkCommand)
      .command(signalCommand)
      .command(updateCommand)
      .command(queryCommand)
      .command(limitsCommand)
      .command(purgeCommand)
      .demandCommand(1)
      .example("$0 runs list --status failed", "the latest failures")
      .example("$0 runs show order-7", "every step of one run"),
  handler: () => {},
};

const STATUSES: readonly RunStatus[] = [
  "running",
  "parked",
  "blocked",
  "completed",
  "failed",
  "cancelled",
];

interface ListArgs extends StoreArgs {
  readonly workflow: string | undefined;
  readonly status: RunStatus | undefined;
  readonly queue: string | undefined;
  readonly key: string | undefined;
  readonly after: string | undefined;
  readonly limit: string;
  readonly json: boolean;
}

const listCommand: CommandModule<unknown, ListArgs> = {
  command: "list",
  describe: "List runs, newest first",
  builder: (yargs) =>
    jsonOption(storeOption(yargs))
      .option("workflow", { type: "string", describe: "only runs of this workflow" })
      .option("status", { choices: STATUSES, describe: "only runs with this status" })
      .option("queue", { type: "string", describe: "only runs of this queue" })
      .option("key", { type: "string", describe: "only runs with this key" })
      .option("limit", { type: "string", default: "20", describe: "the largest number of runs" })
      .option("after", { type: "string", describe: "go on after the run with this id" })
      .example("$0 runs list --workflow place-order --status parked", "runs that wait"),
  async handler(args) {
    const limit = parseInteger("--limit", args.limit);
    checkWhole("--limit", limit, 1, 10_000);
    const { workflow, status, queue, key, after } = args;
    for (const [name, value] of Object.entries({ workflow, queue, key, after })) {
      if (value !== undefined) checkText(`--${name}`, value, 255);
    }
    await withStoreToRead(args, async (opened) => {
      const query = { workflow, status, queue, key, after, limit };
      const runs = await opened.journal.list(query);
      if (args.json) return print(toJson(runs));
      const head = ["run", "workflow", "status", "started", "due", "crashes", "last executed by"];
      print(table(head, runs.map(rowOf)));
    });
  },
};

function rowOf(run: RunInfo): readonly (string | number)[] {
  const { runId, workflow, version, status, reason, startedAt, dueAt, crashes, owner } = run;
  const isCancelling = run.cancelled && !isEnded(status);
  const notes = [...(reason ? [reason] : []), ...(isCancelling ? ["to be cancelled"] : [])];
  const state = notes.length > 0 ? `${status} (${notes.join(", ")})` : status;
  const started = startedAt.toISOString().replace(/\.\d+Z$/, "Z");
  const due = dueAt ? formatDueAt(dueAt) : "";
  return [runId, `${workflow} v${version}`, state, started, due, crashes, owner];
}

function formatDueAt(dueAt: Date): string {
  const left = dueAt.getTime() - Date.now();
  return left > 0 ? `in ${formatDuration(left)}` : "now";
}

interface IdArgs extends StoreArgs {
  readonly id: string;
}

interface CallIdArgs extends CallArgs {
  readonly id: string;
}

interface ShowArgs extends IdArgs, ModuleArgs {
  readonly after: string | undefined;
  readonly limit: string;
  readonly part: string | undefined;
  readonly locks: string | undefined;
  readonly json: boolean;
}

const showCommand: CommandModule<unknown, ShowArgs> = {
  command: "show <id>",
  describe: "Show the steps, attempts, waits, fences and errors of a run",
  builder: (yargs) =>
    jsonOption(
      moduleOption(idPositional(locksOption(storeOption(yargs), "the store of the steps' locks"))),
    )
      .option("limit", { type: "string", default: "1000", describe: "the most records" })
      .option("part", { type: "string", describe: "records of the history before the current one" })
      .option("after", { type: "string", describe: "go on after a page: what it says is next" })
      .example("$0 runs show order-7", "draw the run's timeline")
      .epilog(
        `In the timeline, █ is work, ━ work that goes on, ▓ a failed attempt, ▒ an undo,
░ the wait for a lock, ┄ a sleep or the wait for a signal. "after" is the time from the run's
start to the journal entry, by the journal's clock. Values that were encoded by
a codec are shown as their codec and size without --module.`,
      ),
  async handler(args) {
    checkText("id", args.id, 255);
    const limit = parseInteger("--limit", args.limit);
    checkWhole("--limit", limit, 1, RECORDS_PER_PAGE);
    const part = args.part === undefined ? undefined : parseInteger("--part", args.part);
    if (part !== undefined) checkWhole("--part", part, 1, 2 ** 31 - 1);
    await withStoreToRead(args, async (opened) => {
      const { journal } = opened;
      const runtime = createRuntime({ journal, codec: await codecOf(args) });
      const run = await runtime.show(args.id, { part, after: args.after, limit });
      if (!run) throw unknownRun(args.id);
      if (args.json) return print(toJson(decodeRun(run)));
      const width = Math.min(Math.max(process.stdout.columns ?? 100, 100), 160);
      const read = ({ locks }: Pick<OpenStore, "locks"> = opened) => holdersFor(run, locks);
      const holders = await withLocks(args.locks, read, { create: false });
      print(drawRun(run, width, holders));
    });
  },
};

interface ExportArgs extends IdArgs {
  readonly trace: boolean;
}

const exportCommand: CommandModule<unknown, ExportArgs> = {
  command: "export <id>",
  describe:
    "Print a run's history as JSON for checkReplay of lockstep/testing, with all inputs and results",
  builder: (yargs) =>
    idPositional(storeOption(yargs))
      .option("trace", {
        type: "boolean",
        default: false,
        describe: "print a trace for ui.perfetto.dev, without values",
      })
      .example("$0 runs export order-7 > order-7.json", "keep a history for CI")
      .example("$0 runs export order-7 --trace > trace.json", "look at it in Perfetto"),
  async handler(args) {
    checkText("id", args.id, 255);
    await withStoreToRead(args, async (opened) => {
      const { journal } = opened;
      if (!args.trace) return print(await exportRun(journal, args.id));
      const run = await journal.show(args.id);
      if (!run) throw unknownRun(args.id);
      print(JSON.stringify(traceOf(run)));
    });
  },
};

/** Decodes the values that the journal stores encoded. */
function decodeRun(run: RunDetails) {
  const { input, records, signals, ending } = run;
  return {
    ...run,
    input: shownValue(input),
    records: records.map((record) => ({ ...record, value: shownRecord(record) })),
    signals: signals.map((signal) => ({ ...signal, payload: decodePayload(signal) })),
    ending: ending && { ...ending, value: shownEnding(ending) },
    error: shownFailure(run.error),
  };
}

function shownRecord({ outcome, value }: StepRecord): unknown {
  return outcome === "failed" || outcome === "retry" ? shownFailure(value) : shownValue(value);
}

function shownEnding({ status, value }: Pick<RunResult, "status" | "value">): unknown {
  return status === "completed" ? shownValue(value) : shownFailure(value);
}

function decodePayload({ name, payload }: RunSignal): unknown {
  if (parentStepOf(name) === undefined) return shownValue(payload);
  const ending = decodeChildResult(payload);
  return { ...ending, value: shownEnding(ending) };
}

interface ResumeArgs extends RuntimeArgs {
  readonly id: string;
  readonly file: string;
}

const resumeCommand: CommandModule<unknown, ResumeArgs> = {
  command: "resume <id> <file>",
  describe: "Execute a run that is due in this process",
  builder: (yargs) =>
    idPositional(runtimeOptions(yargs))
      .positional("file", { type: "string", demandOption: true, describe: "the module" })
      .example("$0 runs resume order-7 order.ts", "without a worker")
      .epilog(`${MODULE_HELP}

Exit status: 0 completed; 1 failed; 75 the run waits, or another process
executes it.`),
  async handler(args) {
    checkText("id", args.id, 255);
    const lease = parseDuration("lease", args.lease);
    checkSpan("--lease", lease, 100);
    const program = await loadWorkflowModule(args.file);
    await withRuntime(args, { program, lease, onEvent: showEvent }, async ({ runtime }) => {
      using shutdown = listenForShutdown();
      const signals = { drain: shutdown.requested, signal: shutdown.forced };
      reportOutcome(await runtime.resume(args.id, signals));
    });
  },
};

const cancelCommand: CommandModule<unknown, CallIdArgs & { readonly wait: string | undefined }> = {
  command: "cancel <id>",
  describe: "Stop a run and its children and undo their steps; exit status 1 if the run has ended",
  builder: (yargs) =>
    idPositional(callOptions(yargs))
      .option("wait", {
        type: "string",
        requiresArg: true,
        describe: "wait this long for the end of the run, and print how it ended, as JSON",
      })
      .example("$0 runs cancel order-7", "a worker undoes it")
      .example("$0 runs cancel order-7 --wait 1m", "tells whether all was undone")
      .epilog(
        `Exit status with --wait: 0 cancelled; 1 the run completed or failed; 75 not ended yet.`,
      ),
  async handler(args) {
    checkText("id", args.id, 255);
    const wait = args.wait === undefined ? undefined : parseDuration("wait", args.wait);
    await withCalls(args, async (runtime) => {
      const answer = await runtime.cancel(args.id);
      if (wait === undefined) reportAnswer(answer);
      else reportEnd(await runAtEnd(runtime.journal, args.id, wait));
    });
  },
};

function reportEnd({ runId, status, ending }: RunDetails): void {
  print(toJson({ runId, status, ...(ending?.compensated && { compensated: ending.compensated }) }));
  if (!ending) process.exitCode = EXIT.busy;
  else if (status !== "cancelled") process.exitCode = EXIT.no;
}

const retryCommand: CommandModule<unknown, CallIdArgs> = {
  command: "retry <id>",
  describe: "Let a failed, cancelled or blocked run go on; recorded results are used again",
  builder: (yargs) =>
    idPositional(callOptions(yargs)).example("$0 runs retry order-7", "a worker goes on"),
  handler: (args) => reopen(args, (runtime) => runtime.retry(args.id)),
};

const retryUndoCommand: CommandModule<unknown, CallIdArgs> = {
  command: "retry-undo <id>",
  describe: "Attempt the failed undos of a run again",
  builder: (yargs) =>
    idPositional(callOptions(yargs)).example("$0 runs retry-undo order-7", "after a fix"),
  handler: (args) => reopen(args, (runtime) => runtime.retryUndo(args.id)),
};

interface ForkArgs extends CallIdArgs {
  readonly from: string;
  readonly as: string | undefined;
}

const forkCommand: CommandModule<unknown, ForkArgs> = {
  command: "fork <id>",
  describe: "Start a new run with a run's recorded results up to a step, and print its id",
  builder: (yargs) =>
    idPositional(callOptions(yargs))
      .option("from", {
        type: "string",
        demandOption: true,
        requiresArg: true,
        describe: "the first step to execute anew, by its name in `runs show`",
      })
      .option("as", {
        type: "string",
        requiresArg: true,
        defaultDescription: "a random id",
        describe: "the new run's id; asked twice, it is the same run",
      })
      .example("$0 runs fork order-7 --from charge", "with a fixed version of the step"),
  async handler(args) {
    const { id, from, as } = args;
    checkText("id", id, 255);
    checkText("--from", from, 512);
    if (as !== undefined) checkText("--as", as, 255);
    await withCalls(args, async (runtime) => print(await runtime.fork(id, { from, as })));
  },
};

async function reopen(
  args: CallIdArgs,
  call: (runtime: Runtime) => Promise<string>,
): Promise<void> {
  checkText("id", args.id, 255);
  await withCalls(args, async (runtime) => reportAnswer(await call(runtime)));
}

interface SignalArgs extends CallIdArgs {
  readonly name: string;
  readonly payload: string;
  readonly "dedupe-id": string;
}

const signalCommand: CommandModule<unknown, SignalArgs> = {
  command: "signal <id> <name>",
  describe: "Send a signal to a run; exit status 1 if the run has ended",
  builder: (yargs) =>
    signalOptions(idPositional(callOptions(yargs))).example(
      `$0 runs signal order-7 paid --payload '{"amount":12}'`,
      "wakes the run",
    ),
  async handler(args) {
    const { payload, dedupeId } = signalOf(args);
    await withCalls(args, async (runtime) => {
      reportAnswer(await runtime.signal(args.id, args.name, payload, { dedupeId }));
    });
  },
};

const updateCommand: CommandModule<unknown, SignalArgs & { readonly wait: string }> = {
  command: "update <id> <name>",
  describe: "Send an update to a run, and print the workflow's answer as JSON",
  builder: (yargs) =>
    signalOptions(idPositional(callOptions(yargs)))
      .option("wait", {
        type: "string",
        default: "10s",
        describe: "how long to wait for the answer",
      })
      .example(`$0 runs update cart-7 add --payload '{"sku":"cup"}'`, "while a worker executes it")
      .epilog(`Exit status: 0 answered; 1 refused by the workflow, or the run has ended; 75 not
answered yet.`),
  async handler(args) {
    const { payload, dedupeId } = signalOf(args);
    const wait = parseDuration("wait", args.wait);
    await withCalls(args, async (runtime) => {
      const outcome = await runtime.update(args.id, args.name, payload, { dedupeId, wait });
      print(toJson(outcome));
      if (outcome.status !== "answered") {
        process.exitCode = outcome.status === "pending" ? EXIT.busy : EXIT.no;
      }
    });
  },
};

const queryCommand: CommandModule<unknown, IdArgs & ModuleArgs & { readonly name: string }> = {
  command: "query <id> <name>",
  describe: "Print the last value that a run has published under a name, as JSON",
  builder: (yargs) =>
    moduleOption(idPositional(storeOption(yargs)))
      .positional("name", { type: "string", demandOption: true, describe: "the published name" })
      .example("$0 runs query order-7 progress", "while the run goes on"),
  async handler(args) {
    checkText("id", args.id, 255);
    await withStoreToRead(args, async (opened) => {
      const { journal } = opened;
      const runtime = createRuntime({ journal, codec: await codecOf(args) });
      const value = await shownResult(runtime.query(args.id, args.name));
      print(toJson(value ?? null));
    });
  },
};

function signalOptions<T>(yargs: Argv<T>) {
  return yargs
    .positional("name", { type: "string", demandOption: true, describe: "the signal's name" })
    .option("payload", {
      type: "string",
      default: "null",
      requiresArg: true,
      describe: "the signal's payload, as JSON",
    })
    .option("dedupe-id", {
      type: "string",
      default: randomUUID(),
      defaultDescription: "a random id",
      describe: "signals with the same id are delivered once",
    });
}

/** Reads the payload and the dedupe id. Throws an error that names the argument. */
function signalOf(args: SignalArgs): { readonly payload: unknown; readonly dedupeId: string } {
  checkText("id", args.id, 255);
  checkText("name", args.name, 255);
  checkText("--dedupe-id", args["dedupe-id"], 255);
  return { payload: parseJson("--payload", args.payload), dedupeId: args["dedupe-id"] };
}

function reportAnswer(answer: string): void {
  print(answer);
  if (answer === "ended") process.exitCode = EXIT.no;
}

const purgeCommand: CommandModule<unknown, StoreArgs & { readonly limit: string }> = {
  command: "purge",
  describe: "Delete ended runs whose retention time is over",
  builder: (yargs) =>
    storeOption(yargs)
      .option("limit", { type: "string", default: "10000", describe: "the largest number of runs" })
      .example("$0 runs purge", "every night"),
  async handler(args) {
    const limit = parseInteger("--limit", args.limit);
    checkWhole("--limit", limit, 1, 10_000_000);
    await withStore(args, async (opened) => {
      const count = await opened.journal.purge(limit);
      print(`${count} deleted`);
    });
  },
};

function idPositional<T>(yargs: Argv<T>) {
  return yargs.positional("id", {
    type: "string",
    demandOption: true,
    describe: "the run's id",
  });
}
