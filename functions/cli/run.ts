import { readFile } from "node:fs/promises";
import { text } from "node:stream/consumers";
import type { CommandModule } from "yargs";
import { sleep } from "../../core/lock/abort.ts";
import { checkSpan, checkText } from "../../core/lock/checks.ts";
import type { DriveOptions, Runtime } from "../../core/steps/runtime.ts";
import type { AnyWorkflow, RunOutcome } from "../../core/steps/workflow.ts";
import { chooseWorkflow, loadProgram } from "../worker/program.ts";
import { type CarryingArgs, carrying, MODULE_HELP, withCarrying } from "./carrying.ts";
import { parseJson, toJson } from "./json.ts";
import { print, toMillis } from "./options.ts";
import { report, showEvent } from "./outcome.ts";
import { onTwoSignals } from "./signals.ts";

interface RunArgs extends CarryingArgs {
  readonly file: string;
  readonly workflow: string | undefined;
  readonly input: string;
  readonly id: string | undefined;
  readonly wait: boolean | undefined;
  readonly detach: boolean | undefined;
}

export const runCommand: CommandModule<unknown, RunArgs> = {
  command: "run <file>",
  describe: "Begin a run of a workflow, or go on with it",
  builder: (yargs) =>
    withCarrying(yargs)
      .positional("file", { type: "string", demandOption: true, describe: "the module" })
      .option("workflow", { type: "string", describe: "which one, where the module has several" })
      .option("input", {
        type: "string",
        demandOption: true,
        requiresArg: true,
        describe: "JSON, or @FILE, or - for standard input",
      })
      .option("id", { type: "string", describe: "the run's id; default the workflow's own" })
      .option("wait", {
        type: "boolean",
        describe: "stay until the run has ended, through its sleeps",
      })
      .option("detach", {
        type: "boolean",
        describe: "only begin it, and leave it to a worker",
      })
      .conflicts("wait", "detach")
      .example(`$0 run order.ts --input '{"orderId":"7"}'`, "carry it as far as it gets")
      .example("$0 run order.ts --input @order.json --detach", "leave it to a worker")
      .epilog(
        `${MODULE_HELP}

Prints the outcome as one line of JSON. Interrupted, it parks the run before
its next step; interrupted twice, at once.

Exit status: 0 completed, or begun with --detach; 1 failed; 75 it waits for
something, or somebody else carries it; 69 store unavailable; 64 usage.`,
      ),
  async handler(args) {
    const lease = toMillis("lease", args.lease);
    checkSpan("--lease", lease, 100);
    if (args.id !== undefined) checkText("--id", args.id, 255);
    const program = await loadProgram(args.file);
    const input = parseJson("--input", await readInput(args.input));
    const options = { program, lease, onEvent: showEvent };
    await carrying(args, options, async ({ runtime, workflows }) => {
      const workflow = chooseWorkflow(workflows, args.workflow) as AnyRunnable;
      const id = args.id === undefined ? {} : { id: args.id };
      if (args.detach) return print(toJson(await runtime.start(workflow, input, id)));
      using told = onTwoSignals();
      const signals = { drain: told.first, signal: told.second };
      const drive = () => runtime.drive(workflow, input, { ...id, ...signals });
      report(args.wait ? await untilEnded(drive, told.first) : await drive());
    });
  },
};

/** Its input is checked by its own schema. */
type AnyRunnable = AnyWorkflow & Parameters<Runtime["drive"]>[0];

async function readInput(input: string): Promise<string> {
  if (input === "-") return text(process.stdin);
  if (!input.startsWith("@")) return input;
  try {
    return await readFile(input.slice(1), "utf8");
  } catch (error) {
    throw new TypeError(`--input cannot be read: ${(error as Error).message}`);
  }
}

/** How often one looks for a run that somebody else may have woken. */
const LOOK_EVERY = 1_000;

async function untilEnded(
  drive: () => Promise<RunOutcome<unknown>>,
  told: NonNullable<DriveOptions["drain"]>,
): Promise<RunOutcome<unknown>> {
  for (;;) {
    const outcome = await drive();
    const isEnded = outcome.status === "completed" || outcome.status === "failed";
    if (isEnded || told.aborted) return outcome;
    const wait = outcome.status === "busy" ? outcome.retryIn : outcome.wakeIn;
    await sleep(Math.min(wait, LOOK_EVERY), told).catch(() => {});
  }
}
