import type { CommandModule } from "yargs";
import type { RunDetails } from "../../../core/journal/queries.ts";
import { checkSpan, checkText, checkWhole } from "../../../core/lock/checks.ts";
import { runAtEnd } from "../../../core/steps/run-end.ts";
import { formatJson } from "../../display/format-json.ts";
import { loadWorkflowModule } from "../../worker/workflow-module.ts";
import { EXIT } from "../exit-status.ts";
import { parseDuration, parseInteger, type StoreArgs, storeOption } from "../options.ts";
import { listenForShutdown } from "../process/signals.ts";
import { type CallIdArgs, idPositional } from "../run-id.ts";
import {
  callOptions,
  MODULE_HELP,
  type RuntimeArgs,
  runtimeOptions,
  withCalls,
  withRuntime,
} from "../runtime.ts";
import { withStore } from "../store.ts";
import { reportAnswer, reportOutcome, showEvent } from "../terminal/outcome.ts";
import { print } from "../terminal/output.ts";
import { limitsCommand } from "./limits.ts";
import { retryCommand } from "./retry-runs.ts";
import { exportCommand, listCommand, showCommand } from "./show-runs.ts";
import { queryCommand, signalCommand, updateCommand } from "./signal-runs.ts";

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
  print(
    formatJson({ runId, status, ...(ending?.compensated && { compensated: ending.compensated }) }),
  );
  if (!ending) process.exitCode = EXIT.busy;
  else if (status !== "cancelled") process.exitCode = EXIT.no;
}

const retryUndoCommand: CommandModule<unknown, CallIdArgs> = {
  command: "retry-undo <id>",
  describe: "Attempt the failed undos of a run again",
  builder: (yargs) =>
    idPositional(callOptions(yargs)).example("$0 runs retry-undo order-7", "after a fix"),
  async handler(args) {
    checkText("id", args.id, 255);
    await withCalls(args, async (runtime) => reportAnswer(await runtime.retryUndo(args.id)));
  },
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

const purgeCommand: CommandModule<unknown, StoreArgs & { readonly limit: string }> = {
  command: "purge",
  describe: "Delete ended runs whose retention time is over",
  builder: (yargs) =>
    storeOption(yargs)
      .option("limit", {
        type: "string",
        requiresArg: true,
        default: "10000",
        describe: "the largest number of runs",
      })
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
