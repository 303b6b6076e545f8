import type { CommandModule } from "yargs";
import type { Journal } from "../../../core/journal/journal.ts";
import type { RunStatus } from "../../../core/journal/runs.ts";
import { checkText } from "../../../core/lock/checks.ts";
import type { Runtime } from "../../../core/steps/contract.ts";
import { escapeControls } from "../../display/escape-controls.ts";
import { mapConcurrent } from "../../invocation/map-concurrent.ts";
import { describeError, EXIT, exitStatusOf } from "../exit-status.ts";
import { type CallArgs, callOptions, withCalls } from "../runtime.ts";
import { reportAnswer } from "../terminal/outcome.ts";
import { print, warn } from "../terminal/output.ts";

/** The runs that a retry lets go on. */
const STATUSES = ["blocked", "failed", "cancelled"] as const satisfies readonly RunStatus[];

interface RetryArgs extends CallArgs {
  readonly ids: readonly string[];
  readonly status: (typeof STATUSES)[number] | undefined;
  readonly workflow: string | undefined;
}

export const retryCommand: CommandModule<unknown, RetryArgs> = {
  command: "retry [ids..]",
  describe: "Let failed, cancelled or blocked runs go on; recorded results are used again",
  builder: (yargs) =>
    callOptions(yargs)
      .positional("ids", { type: "string", array: true, default: [], describe: "the runs' ids" })
      .option("status", {
        requiresArg: true,
        choices: STATUSES,
        describe: "instead of ids: all runs in this status",
      })
      .option("workflow", {
        type: "string",
        requiresArg: true,
        describe: "with --status: only runs of this workflow",
      })
      .example("$0 runs retry order-7", "a worker goes on")
      .example("$0 runs retry --status blocked --workflow order", "when its code is mended")
      .epilog("Exit status 1: a run does not exist, has completed, or has failed undos."),
  async handler(args) {
    checkChoice(args);
    await withCalls(args, async (runtime) => {
      const [id, ...others] = args.ids;
      if (id !== undefined && others.length === 0) return reportAnswer(await runtime.retry(id));
      const ids = args.status === undefined ? args.ids : await idsOf(runtime.journal, args);
      if (ids.length === 0) warn(`no run is ${args.status}`);
      await mapConcurrent(ids, AT_ONCE, (each) => retryOne(runtime, each));
    });
  },
};

/** Throws unless the runs are named by their ids, or by their status. */
function checkChoice({ ids, status, workflow }: RetryArgs): void {
  if (ids.length > 0 === (status !== undefined)) {
    throw new TypeError("runs retry takes the ids of runs, or --status");
  }
  if (workflow !== undefined) {
    if (status === undefined) throw new TypeError("--workflow needs --status");
    checkText("--workflow", workflow, 255);
  }
  for (const id of ids) checkText("id", id, 255);
}

const AT_ONCE = 8;

const PAGE = 1_000;

async function idsOf(journal: Journal, { status, workflow }: RetryArgs): Promise<string[]> {
  const ids: string[] = [];
  for (;;) {
    const page = await journal.list({ status, workflow, after: ids.at(-1), limit: PAGE });
    ids.push(...page.map(({ runId }) => runId));
    if (page.length < PAGE) return ids;
  }
}

/** A run that cannot be retried does not hinder the others. */
async function retryOne(runtime: Runtime, id: string): Promise<void> {
  try {
    print(`${escapeControls(id)} ${await runtime.retry(id)}`);
  } catch (error) {
    if (exitStatusOf(error) !== EXIT.no) throw error;
    warn(describeError(error));
    process.exitCode = EXIT.no;
  }
}
