import type { CommandModule } from "yargs";
import { checkSpan, checkWhole } from "../../core/lock/checks.ts";
import type { WorkerEvent } from "../worker/options.ts";
import { loadProgram } from "../worker/program.ts";
import { runWorker } from "../worker/worker.ts";
import { type CarryingArgs, carrying, MODULE_HELP, withCarrying } from "./carrying.ts";
import { describe, statusOfSignal } from "./exit.ts";
import { note, print, toMillis, toWhole, warn } from "./options.ts";
import { outcomeText } from "./outcome.ts";
import { onTwoSignals } from "./signals.ts";

interface WorkerArgs extends CarryingArgs {
  readonly file: string;
  readonly concurrency: string;
  readonly "per-key": string;
  readonly drain: string;
}

export const workerCommand: CommandModule<unknown, WorkerArgs> = {
  command: "worker <file>",
  describe: "Carry runs of workflows, whoever has begun them",
  builder: (yargs) =>
    withCarrying(yargs)
      .positional("file", { type: "string", demandOption: true, describe: "the module" })
      .option("concurrency", {
        type: "string",
        default: "8",
        describe: "how many runs at a time; those that sleep do not count",
      })
      .option("per-key", {
        type: "string",
        default: "1",
        describe: "how many of the same key, where the module exports keyOf",
      })
      .option("drain", {
        type: "string",
        default: "30s",
        describe: "how long steps under way may go on once it is told to end",
      })
      .example("$0 worker order.ts --store mysql://shop@db/shop", "start as many as you like")
      .example("$0 worker order.ts --locks etcd://127.0.0.1:2379", "with the steps' locks in etcd")
      .epilog(
        `${MODULE_HELP}
If it exports keyOf({ runId, workflow, version, input }), at most --per-key
runs of one key are carried here at a time.

Ends on TERM, INT and HUP: takes no more runs, lets steps under way finish,
and parks each run before its next step. A second signal, or the end of
--drain, aborts the steps.

Exit status: 0 when everything under way could finish, else 128 and the
signal's number; 69 store unavailable, 64 usage.`,
      ),
  async handler(args) {
    const [concurrency, perKey, drain, lease] = [
      toWhole("--concurrency", args.concurrency),
      toWhole("--per-key", args["per-key"]),
      toMillis("drain", args.drain),
      toMillis("lease", args.lease),
    ];
    checkWhole("--concurrency", concurrency, 1, 1_000);
    checkWhole("--per-key", perKey, 1, 1_000);
    checkSpan("--drain", drain, 0);
    checkSpan("--lease", lease, 100);
    const program = await loadProgram(args.file);
    await carrying(args, { program, lease, onEvent: () => {} }, async ({ runtime, workflows }) => {
      using told = onTwoSignals();
      const names = workflows.map(({ name, version }) => `${name} v${version}`).join(", ");
      note(`carrying ${names}, ${concurrency} at a time, on ${runtime.journal.address}`);
      const { keyOf } = program;
      const { isClean, ...counts } = await runWorker({
        ...{ runtime, concurrency, perKey, drain, onEvent: tell },
        signal: told.first,
        abort: told.second,
        ...(keyOf && { keyOf }),
      });
      print(JSON.stringify(counts));
      if (!isClean && told.name) process.exitCode = statusOfSignal(told.name);
    });
  },
};

function tell(event: WorkerEvent): void {
  if (event.type === "carried") note(`${event.outcome.runId}  ${outcomeText(event.outcome)}`);
  if (event.type === "draining")
    note(`runs under way: ${event.running}; a second signal aborts them`);
  if (event.type === "aborting")
    warn(`runs that were still under way, and aborted: ${event.running}`);
  if (event.type === "outage") warn(`the journal is away: ${describe(event.error)}`);
  if (event.type === "recovered") warn("the journal is back");
  if (event.type === "refused") {
    warn(`run ${event.runId} cannot be carried: ${describe(event.error)}`);
  }
}
