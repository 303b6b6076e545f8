import { hostname } from "node:os";
import type { Argv } from "yargs";
import type { Journal } from "../../core/journal/journal.ts";
import type { RunListener } from "../../core/steps/events.ts";
import { createRuntime, type Runtime } from "../../core/steps/runtime.ts";
import type { AnyWorkflow } from "../../core/steps/workflow.ts";
import { readConfig } from "../../infra/config.ts";
import { type Opened, open } from "../../infra/open.ts";
import type { Program } from "../worker/program.ts";
import { type StoreArgs, using, withStore } from "./options.ts";

export interface CarryingArgs extends StoreArgs {
  readonly locks: string | undefined;
  readonly lease: string;
}

/** The options of commands that carry runs. */
export function withCarrying<T>(yargs: Argv<T>): Argv<T & CarryingArgs> {
  return withStore(yargs)
    .option("locks", {
      type: "string",
      describe: "the store of the steps' locks, if another one; also from LOCKSTEP_LOCKS",
      default: readConfig().locks,
      defaultDescription: "the store",
      requiresArg: true,
    })
    .option("lease", {
      type: "string",
      default: "30s",
      describe: "how long others leave a run alone after its process was last heard from",
    });
}

export const MODULE_HELP = `FILE is a module, TypeScript or JavaScript. Its workflows are whatever it exports that
is one; its default export may be a function from { locks, inventory, database } to
workflows, for those that use the store.`;

export interface Carrying {
  readonly runtime: Runtime;
  readonly workflows: readonly AnyWorkflow[];
}

/** Opens journal and locks, makes the module's workflows, does the work, and closes everything whatever happens. */
export async function carrying<T>(
  args: CarryingArgs,
  { program, lease, onEvent }: CarryingOptions,
  work: (carrying: Carrying) => Promise<T>,
): Promise<T> {
  const apart = args.locks === undefined ? undefined : await open(args.locks);
  try {
    return await using(args, async (opened) => {
      const { inventory, database } = opened;
      const { locks } = apart ?? opened;
      const workflows = await program.workflows({ locks, inventory, database });
      const owner = `${hostname().slice(0, 100)}:${process.pid}`;
      const journal = journalOf(opened);
      return work({
        runtime: createRuntime({ journal, locks, workflows, owner, lease, onEvent }),
        workflows,
      });
    });
  } finally {
    await apart?.close();
    leaveSoon();
  }
}

interface CarryingOptions {
  readonly program: Program;
  readonly lease: number;
  readonly onEvent: RunListener;
}

export function journalOf({ journal, locks }: Opened): Journal {
  if (journal) return journal;
  throw new TypeError(
    `--store must name a store that keeps a journal, such as sqlite: or mysql:, not ${locks.traits.name}`,
  );
}

/** Once the exit status is known: the module may hold something open that would keep the process from ending. */
function leaveSoon(): void {
  setTimeout(() => process.exit(), 0);
}
