import type { Argv, CommandModule } from "yargs";
import type { RunDetails, RunInfo, RunStatus } from "../../core/journal/journal.ts";
import { sqlJournal } from "../../core/journal/sql.ts";
import { checkText, checkWhole } from "../../core/lock/checks.ts";
import { decode } from "../../core/steps/codec.ts";
import { UnknownRunError } from "../../core/steps/errors.ts";
import { payloadOf, toJson } from "./json.ts";
import { databaseOf, print, type StoreArgs, toWhole, using, withStore } from "./options.ts";
import { drawRun } from "./run-text.ts";
import { cancelCommand, type IdArgs, resumeCommand, signalCommand, withId } from "./runs-act.ts";
import { spanText } from "./spans.ts";
import { table } from "./table.ts";

export const runsCommand: CommandModule = {
  command: "runs <action>",
  describe: "Look at runs of workflows, and act on them",
  builder: (yargs) =>
    yargs
      .command(listCommand)
      .command(showCommand)
      .command(resumeCommand)
      .command(cancelCommand)
      .command(signalCommand)
      .command(purgeCommand)
      .demandCommand(1)
      .example("$0 runs list --status failed", "what went wrong lately")
      .example("$0 runs show order-7", "what it did, step by step"),
  handler: () => {},
};

const STATUSES: readonly RunStatus[] = ["running", "parked", "completed", "failed", "cancelled"];

interface ListArgs extends StoreArgs {
  readonly workflow: string | undefined;
  readonly status: RunStatus | undefined;
  readonly limit: string;
  readonly json: boolean;
}

const listCommand: CommandModule<unknown, ListArgs> = {
  command: "list",
  describe: "List runs, newest first",
  builder: (yargs) =>
    withJson(withStore(yargs))
      .option("workflow", { type: "string", describe: "of this workflow only" })
      .option("status", { choices: STATUSES, describe: "in this state only" })
      .option("limit", { type: "string", default: "20", describe: "how many" })
      .example("$0 runs list --workflow place-order --status parked", "what waits"),
  async handler(args) {
    const limit = toWhole("--limit", args.limit);
    checkWhole("--limit", limit, 1, 10_000);
    const { workflow, status } = args;
    if (workflow !== undefined) checkText("--workflow", workflow, 255);
    await using(args, async (opened) => {
      const runs = await sqlJournal(databaseOf(opened)).list({ workflow, status, limit });
      if (args.json) return print(toJson(runs));
      const head = ["run", "workflow", "status", "begun", "due", "crashes", "last carried by"];
      print(table(head, runs.map(rowOf)));
    });
  },
};

function rowOf(run: RunInfo): readonly (string | number)[] {
  const { runId, workflow, version, status, reason, startedAt, dueAt, crashes, owner } = run;
  const isToStop = run.cancelled && (status === "running" || status === "parked");
  const notes = [...(reason ? [reason] : []), ...(isToStop ? ["to be cancelled"] : [])];
  const state = notes.length > 0 ? `${status} (${notes.join(", ")})` : status;
  const begun = startedAt.toISOString().replace(/\.\d+Z$/, "Z");
  const due = dueAt ? dueText(dueAt) : "";
  return [runId, `${workflow} v${version}`, state, begun, due, crashes, owner];
}

function dueText(dueAt: Date): string {
  const left = dueAt.getTime() - Date.now();
  return left > 0 ? `in ${spanText(left)}` : "now";
}

const showCommand: CommandModule<unknown, IdArgs & { readonly json: boolean }> = {
  command: "show <id>",
  describe: "Show what a run did: steps, attempts, waits, fences, errors",
  builder: (yargs) =>
    withJson(withId(withStore(yargs)))
      .example("$0 runs show order-7", "as a picture")
      .epilog(
        `In the picture, █ is work, ▓ an attempt that failed, ▒ something undone,
░ the wait for a lock, ┄ a sleep or the wait for a signal. "after" counts from
the run's start to when it was written down, by the journal's clock.`,
      ),
  async handler(args) {
    checkText("id", args.id, 255);
    await using(args, async (opened) => {
      const run = await sqlJournal(databaseOf(opened)).show(args.id);
      if (!run) throw new UnknownRunError(args.id);
      if (args.json) return print(toJson(detailsOf(run)));
      print(drawRun(run, Math.min(Math.max(process.stdout.columns ?? 100, 100), 160)));
    });
  },
};

/** What was encoded for the journal is decoded. */
function detailsOf(run: RunDetails) {
  const { input, records, signals, ending } = run;
  return {
    ...run,
    input: decode(input),
    records: records.map((record) => ({ ...record, value: decode(record.value) })),
    signals: signals.map((signal) => ({ ...signal, payload: payloadOf(signal) })),
    ending: ending && { ...ending, value: decode(ending.value) },
  };
}

const purgeCommand: CommandModule<unknown, StoreArgs & { readonly limit: string }> = {
  command: "purge",
  describe: "Forget ended runs that have been kept long enough",
  builder: (yargs) =>
    withStore(yargs)
      .option("limit", { type: "string", default: "10000", describe: "how many at the most" })
      .example("$0 runs purge", "every night"),
  async handler(args) {
    const limit = toWhole("--limit", args.limit);
    checkWhole("--limit", limit, 1, 10_000_000);
    await using(args, async (opened) => {
      const count = await sqlJournal(databaseOf(opened)).purge(limit);
      print(`${count} forgotten`);
    });
  },
};

function withJson<T>(yargs: Argv<T>) {
  return yargs.option("json", {
    type: "boolean",
    default: false,
    describe: "print one JSON document",
  });
}
