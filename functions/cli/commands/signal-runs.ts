import { randomUUID } from "node:crypto";
import type { Argv, CommandModule } from "yargs";
import { checkText } from "../../../core/lock/checks.ts";
import { createRuntime } from "../../../core/steps/runtime.ts";
import { formatJson, parseJson } from "../../display/format-json.ts";
import { shownResult } from "../../json/shown-value.ts";
import { EXIT } from "../exit-status.ts";
import { parseDuration, storeOption } from "../options.ts";
import { type CallIdArgs, type IdArgs, idPositional } from "../run-id.ts";
import { callOptions, codecOf, type ModuleArgs, moduleOption, withCalls } from "../runtime.ts";
import { withStoreToRead } from "../store.ts";
import { reportAnswer } from "../terminal/outcome.ts";
import { print } from "../terminal/output.ts";

interface SignalArgs extends CallIdArgs {
  readonly name: string;
  readonly payload: string;
  readonly "dedupe-id": string;
}

export const signalCommand: CommandModule<unknown, SignalArgs> = {
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

export const updateCommand: CommandModule<unknown, SignalArgs & { readonly wait: string }> = {
  command: "update <id> <name>",
  describe: "Send an update to a run, and print the workflow's answer as JSON",
  builder: (yargs) =>
    signalOptions(idPositional(callOptions(yargs)))
      .option("wait", {
        type: "string",
        requiresArg: true,
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
      print(formatJson(outcome));
      if (outcome.status !== "answered") {
        process.exitCode = outcome.status === "pending" ? EXIT.busy : EXIT.no;
      }
    });
  },
};

export const queryCommand: CommandModule<unknown, IdArgs & ModuleArgs & { readonly name: string }> =
  {
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
        print(formatJson(value ?? null));
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
      requiresArg: true,
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
