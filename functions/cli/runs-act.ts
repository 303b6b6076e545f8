import { randomUUID } from "node:crypto";
import type { Argv, CommandModule } from "yargs";
import { sqlJournal } from "../../core/journal/sql.ts";
import { checkSpan, checkText } from "../../core/lock/checks.ts";
import { createRuntime } from "../../core/steps/runtime.ts";
import { loadProgram } from "../worker/program.ts";
import { type CarryingArgs, carrying, MODULE_HELP, withCarrying } from "./carrying.ts";
import { EXIT } from "./exit.ts";
import { parseJson } from "./json.ts";
import { databaseOf, print, type StoreArgs, toMillis, using, withStore } from "./options.ts";
import { report, showEvent } from "./outcome.ts";
import { onTwoSignals } from "./signals.ts";

export interface IdArgs extends StoreArgs {
  readonly id: string;
}

interface ResumeArgs extends CarryingArgs {
  readonly id: string;
  readonly file: string;
}

export const resumeCommand: CommandModule<unknown, ResumeArgs> = {
  command: "resume <id> <file>",
  describe: "Go on with a run that is due, here and now",
  builder: (yargs) =>
    withId(withCarrying(yargs))
      .positional("file", { type: "string", demandOption: true, describe: "the module" })
      .example("$0 runs resume order-7 order.ts", "without a worker")
      .epilog(`${MODULE_HELP}

Exit status: 0 completed, 1 failed, 75 it waits for something, or somebody
else carries it.`),
  async handler(args) {
    checkText("id", args.id, 255);
    const lease = toMillis("lease", args.lease);
    checkSpan("--lease", lease, 100);
    const program = await loadProgram(args.file);
    await carrying(args, { program, lease, onEvent: showEvent }, async ({ runtime }) => {
      using told = onTwoSignals();
      report(await runtime.resume(args.id, { drain: told.first, signal: told.second }));
    });
  },
};

export const cancelCommand: CommandModule<unknown, IdArgs> = {
  command: "cancel <id>",
  describe: "Stop a run at its next step, and undo what it did; exit status 1 when it has ended",
  builder: (yargs) =>
    withId(withStore(yargs)).example("$0 runs cancel order-7", "a worker undoes it"),
  async handler(args) {
    checkText("id", args.id, 255);
    await using(args, async (opened) => {
      const answer = await createRuntime({ journal: sqlJournal(databaseOf(opened)) }).cancel(
        args.id,
      );
      say(answer);
    });
  },
};

interface SignalArgs extends IdArgs {
  readonly name: string;
  readonly payload: string;
  readonly "dedupe-id": string;
}

export const signalCommand: CommandModule<unknown, SignalArgs> = {
  command: "signal <id> <name>",
  describe: "Send a run a signal that it waits for; exit status 1 when it has ended",
  builder: (yargs) =>
    withId(withStore(yargs))
      .positional("name", { type: "string", demandOption: true, describe: "the signal's name" })
      .option("payload", {
        type: "string",
        default: "null",
        requiresArg: true,
        describe: "what it brings, as JSON",
      })
      .option("dedupe-id", {
        type: "string",
        default: randomUUID(),
        defaultDescription: "a random one",
        describe: "the same id is delivered once, however often it comes",
      })
      .example(`$0 runs signal order-7 paid --payload '{"amount":12}'`, "wakes it up"),
  async handler(args) {
    checkText("id", args.id, 255);
    checkText("name", args.name, 255);
    checkText("--dedupe-id", args["dedupe-id"], 255);
    const payload = parseJson("--payload", args.payload);
    await using(args, async (opened) => {
      const runtime = createRuntime({ journal: sqlJournal(databaseOf(opened)) });
      const options = { dedupeId: args["dedupe-id"] };
      say(await runtime.signal(args.id, args.name, payload, options));
    });
  },
};

function say(answer: string): void {
  print(answer);
  if (answer === "ended") process.exitCode = EXIT.no;
}

export function withId<T>(yargs: Argv<T>) {
  return yargs.positional("id", {
    type: "string",
    demandOption: true,
    describe: "the run's id",
  });
}
