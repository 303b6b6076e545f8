import { readFile } from "node:fs/promises";
import { text } from "node:stream/consumers";
import type { CommandModule } from "yargs";
import { sleep } from "../../../core/lock/abort.ts";
import { checkSpan, checkText } from "../../../core/lock/checks.ts";
import { hashOf } from "../../../core/steps/codec.ts";
import type { ExecuteOptions, Runtime, StartOptions } from "../../../core/steps/contract.ts";
import type { AnyWorkflow, RunOutcome } from "../../../core/steps/workflow.ts";
import { formatJson, parseJson } from "../../display/format-json.ts";
import { chooseWorkflow, loadWorkflowModule } from "../../worker/workflow-module.ts";
import { parseDuration } from "../options.ts";
import { listenForShutdown } from "../process/signals.ts";
import { MODULE_HELP, type RuntimeArgs, runtimeOptions, withRuntime } from "../runtime.ts";
import { reportOutcome, showEvent } from "../terminal/outcome.ts";
import { print } from "../terminal/output.ts";

interface RunArgs extends RuntimeArgs {
  readonly file: string;
  readonly workflow: string | undefined;
  readonly input: string;
  readonly id: string | undefined;
  readonly wait: boolean | undefined;
  readonly detach: boolean | undefined;
  readonly singleton: string | undefined;
  readonly debounce: string | undefined;
  readonly "debounce-key": string | undefined;
}

export const runCommand: CommandModule<unknown, RunArgs> = {
  command: "run <file>",
  describe: "Start or continue a run of a workflow",
  builder: (yargs) =>
    runtimeOptions(yargs)
      .positional("file", { type: "string", demandOption: true, describe: "the module" })
      .option("workflow", {
        type: "string",
        requiresArg: true,
        describe: "the workflow, if the module exports several",
      })
      .option("input", {
        type: "string",
        demandOption: true,
        requiresArg: true,
        describe: "JSON, or @FILE, or - for standard input",
      })
      .option("id", {
        type: "string",
        requiresArg: true,
        describe: "the run's id; default: as the workflow derives it",
      })
      .option("wait", {
        type: "boolean",
        describe: "stay until the run has ended, through its sleeps and waits",
      })
      .option("detach", {
        type: "boolean",
        describe: "only start the run; a worker executes it",
      })
      .option("singleton", {
        type: "string",
        requiresArg: true,
        describe: "with --detach: start no run while one with this key is open",
      })
      .option("debounce", {
        type: "string",
        requiresArg: true,
        describe: "with --detach: one run for all starts within this time of one another",
      })
      .option("debounce-key", {
        type: "string",
        requiresArg: true,
        describe: "the key of --debounce; default: the input",
      })
      .conflicts("wait", "detach")
      .implies({ singleton: "detach", debounce: "detach", "debounce-key": "debounce" })
      .example(`$0 run order.ts --input '{"orderId":"7"}'`, "execute it until it ends or waits")
      .example("$0 run order.ts --input @order.json --detach", "leave the execution to a worker")
      .example(
        "$0 run report.ts --input null --detach --singleton all",
        "one open report at a time",
      )
      .epilog(
        `${MODULE_HELP}

Prints the outcome as one line of JSON. A signal parks the run before its next
step; a second one parks it at once.

Exit status: 0 completed, or started with --detach; 1 failed; 75 the run waits,
or another process executes it; 69 store unavailable; 64 usage.`,
      ),
  async handler(args) {
    const lease = parseDuration("lease", args.lease);
    checkSpan("--lease", lease, 100);
    if (args.id !== undefined) checkText("--id", args.id, 255);
    const program = await loadWorkflowModule(args.file);
    const input = parseJson("--input", await readInput(args.input));
    const options = { program, lease, onEvent: showEvent };
    await withRuntime(args, options, async ({ runtime, workflows }) => {
      const workflow = chooseWorkflow(workflows, args.workflow) as AnyRunnable;
      const id = args.id === undefined ? {} : { id: args.id };
      if (args.detach) {
        const keyed = toKeyed(args, input);
        return print(formatJson(await runtime.start(workflow, input, { ...id, ...keyed })));
      }
      using shutdown = listenForShutdown();
      const signals = { drain: shutdown.requested, signal: shutdown.forced };
      const execute = () => runtime.execute(workflow, input, { ...id, ...signals });
      reportOutcome(
        args.wait ? await executeUntilEnded(execute, shutdown.requested) : await execute(),
      );
    });
  },
};

function toKeyed(
  { singleton, debounce, "debounce-key": key }: RunArgs,
  input: unknown,
): StartOptions {
  return {
    ...(singleton !== undefined && { singleton }),
    ...(debounce !== undefined && {
      debounce: { key: key ?? hashOf(input), for: parseDuration("debounce", debounce) },
    }),
  };
}

/** The workflow's own schema checks the input. */
type AnyRunnable = AnyWorkflow & Parameters<Runtime["execute"]>[0];

async function readInput(input: string): Promise<string> {
  if (input === "-") return text(process.stdin);
  if (!input.startsWith("@")) return input;
  try {
    return await readFile(input.slice(1), "utf8");
  } catch (error) {
    throw new TypeError(`--input cannot be read: ${(error as Error).message}`);
  }
}

/** How often the status of a waiting run is checked, in milliseconds: another process may wake it. */
const POLL_INTERVAL = 1_000;

async function executeUntilEnded(
  execute: () => Promise<RunOutcome<unknown>>,
  shutdown: NonNullable<ExecuteOptions["drain"]>,
): Promise<RunOutcome<unknown>> {
  for (;;) {
    const outcome = await execute();
    const isEnded = outcome.status !== "suspended" && outcome.status !== "busy";
    if (isEnded || shutdown.aborted) return outcome;
    const wait = outcome.status === "busy" ? outcome.retryIn : outcome.wakeIn;
    await sleep(Math.min(wait, POLL_INTERVAL), shutdown).catch(() => {});
  }
}
