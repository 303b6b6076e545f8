import type { CommandModule } from "yargs";
import { decodeChildResult, parentStepOf } from "../../../core/journal/child-result.ts";
import type { RunDetails, RunInfo } from "../../../core/journal/queries.ts";
import { RECORDS_PER_PAGE, type StepRecord } from "../../../core/journal/records.ts";
import {
  isOpen,
  RUN_STATUSES,
  type RunResult,
  type RunSignal,
  type RunStatus,
} from "../../../core/journal/runs.ts";
import { checkText, checkWhole } from "../../../core/lock/checks.ts";
import type { OpenStore } from "../../../core/lock/open-store.ts";
import { unknownRun } from "../../../core/steps/errors.ts";
import { exportRun } from "../../../core/steps/replay-check.ts";
import { createRuntime } from "../../../core/steps/runtime.ts";
import { escapeLines } from "../../display/escape-controls.ts";
import { formatDuration } from "../../display/format-duration.ts";
import { formatJson } from "../../display/format-json.ts";
import { holdersFor } from "../../display/holders.ts";
import { shownError, shownFailure, shownValue } from "../../json/shown-value.ts";
import { jsonOption, locksOption, parseInteger, type StoreArgs, storeOption } from "../options.ts";
import { type IdArgs, idPositional } from "../run-id.ts";
import { codecOf, type ModuleArgs, moduleOption } from "../runtime.ts";
import { withLocks, withStoreToRead } from "../store.ts";
import { drawRun } from "../terminal/draw-run.ts";
import { print } from "../terminal/output.ts";
import { table } from "../terminal/table.ts";
import { traceOf } from "../terminal/trace.ts";

interface ListArgs extends StoreArgs {
  readonly workflow: string | undefined;
  readonly status: RunStatus | undefined;
  readonly queue: string | undefined;
  readonly key: string | undefined;
  readonly after: string | undefined;
  readonly limit: string;
  readonly json: boolean;
}

export const listCommand: CommandModule<unknown, ListArgs> = {
  command: "list",
  describe: "List runs, newest first",
  builder: (yargs) =>
    jsonOption(storeOption(yargs))
      .option("workflow", {
        type: "string",
        requiresArg: true,
        describe: "only runs of this workflow",
      })
      .option("status", {
        requiresArg: true,
        choices: RUN_STATUSES,
        describe: "only runs with this status",
      })
      .option("queue", { type: "string", requiresArg: true, describe: "only runs of this queue" })
      .option("key", { type: "string", requiresArg: true, describe: "only runs with this key" })
      .option("limit", {
        type: "string",
        requiresArg: true,
        default: "20",
        describe: "the largest number of runs",
      })
      .option("after", {
        type: "string",
        requiresArg: true,
        describe: "go on after the run with this id",
      })
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
      if (args.json) {
        return print(formatJson(runs.map((run) => ({ ...run, error: shownFailure(run.error) }))));
      }
      const head = ["run", "workflow", "status", "started", "due", "crashes", "last executed by"];
      print(table(head, runs.map(rowOf)));
    });
  },
};

function rowOf(run: RunInfo): readonly (string | number)[] {
  const { runId, workflow, version, status, reason, error, startedAt, dueAt, crashes, owner } = run;
  const isCancelling = run.cancelled && isOpen(status);
  const notes = [
    ...(reason ? [reason] : []),
    ...(error === undefined ? [] : [codeOf(error)]),
    ...(isCancelling ? ["to be cancelled"] : []),
  ];
  const state = notes.length > 0 ? `${status} (${notes.join(", ")})` : status;
  const started = startedAt.toISOString().replace(/\.\d+Z$/, "Z");
  const due = dueAt ? formatDueAt(dueAt) : "";
  return [runId, `${workflow} v${version}`, state, started, due, crashes, owner];
}

function codeOf(error: string): string {
  const { code, name } = shownError(error);
  return code ?? name;
}

function formatDueAt(dueAt: Date): string {
  const left = dueAt.getTime() - Date.now();
  return left > 0 ? `in ${formatDuration(left)}` : "now";
}

interface ShowArgs extends IdArgs, ModuleArgs {
  readonly after: string | undefined;
  readonly limit: string;
  readonly part: string | undefined;
  readonly locks: string | undefined;
  readonly json: boolean;
}

export const showCommand: CommandModule<unknown, ShowArgs> = {
  command: "show <id>",
  describe: "Show the steps, attempts, waits, fences and errors of a run",
  builder: (yargs) =>
    jsonOption(
      moduleOption(idPositional(locksOption(storeOption(yargs), "the store of the steps' locks"))),
    )
      .option("limit", {
        type: "string",
        requiresArg: true,
        default: "1000",
        describe: "the most records",
      })
      .option("part", {
        type: "string",
        requiresArg: true,
        describe: "records of the history before the current one",
      })
      .option("after", {
        type: "string",
        requiresArg: true,
        describe: "go on after a page: what it says is next",
      })
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
      if (args.json) return print(formatJson(decodeRun(run)));
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

export const exportCommand: CommandModule<unknown, ExportArgs> = {
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
      if (!args.trace) return print(escapeLines(await exportRun(journal, args.id)));
      const run = await journal.show(args.id);
      if (!run) throw unknownRun(args.id);
      print(formatJson(traceOf(run)));
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
