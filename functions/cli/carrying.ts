import { subscribe } from "node:diagnostics_channel";
import { hostname } from "node:os";
import type { Argv } from "yargs";
import { observed } from "../../core/inventory/observed.ts";
import { sqlInventory } from "../../core/inventory/sql.ts";
import type { Journal } from "../../core/journal/journal.ts";
import { sqlJournal } from "../../core/journal/sql.ts";
import type { LockEvent } from "../../core/lock/events.ts";
import { listener } from "../../core/lock/listener.ts";
import type { RunListener } from "../../core/steps/events.ts";
import { createRuntime, type Runtime } from "../../core/steps/runtime.ts";
import type { AnyWorkflow } from "../../core/steps/workflow.ts";
import { readConfig } from "../../infra/config.ts";
import { open } from "../../infra/open.ts";
import { openTelemetryIfRegistered } from "../telemetry/if-registered.ts";
import { type Telemetry, tellingToo, together } from "../telemetry/telemetry.ts";
import type { Program, Services } from "../worker/program.ts";
import { databaseOf, type StoreArgs, using, withStore } from "./options.ts";

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

export const MODULE_HELP = `FILE is a module, TypeScript or JavaScript. Its workflows are whatever it
exports that is one; its default export may be a function from
{ locks, database, inventory } to workflows, for those that use the store.`;

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
  return stores(args, async ({ services, journal, owner, telemetry }) => {
    const workflows = await program.workflows(services);
    const { locks } = services;
    const options = { journal, locks, workflows, owner, lease };
    const runtime = createRuntime({ ...options, ...tellingToo(telemetry, onEvent) });
    return work({ runtime, workflows });
  });
}

/** What runs are carried with. */
interface Stores {
  readonly services: Services;
  readonly journal: Journal;

  /** Who we are, for humans. */
  readonly owner: string;

  /** For OpenTelemetry, where the program was started with its SDK. */
  readonly telemetry: Telemetry;
}

/** Opens journal and locks, does the work, and closes everything whatever happens; then ends the process. */
export async function stores<T>(
  args: CarryingArgs,
  work: (stores: Stores) => Promise<T>,
): Promise<T> {
  const telemetry = await toOpenTelemetry();
  const apart = args.locks === undefined ? undefined : await open(args.locks);
  try {
    return await using(args, (opened) => {
      const database = databaseOf(opened);
      const { locks } = apart ?? opened;
      const inventory = observed(sqlInventory(database), telemetry.stock);
      const services = { locks, database, inventory };
      const owner = `${hostname().slice(0, 100)}:${process.pid}`;
      return work({ services, journal: sqlJournal(database), owner, telemetry });
    });
  } finally {
    await apart?.close();
    leaveSoon();
  }
}

async function toOpenTelemetry(): Promise<Telemetry> {
  const otel = await openTelemetryIfRegistered();
  if (!otel) return together();
  const telemetry = otel.openTelemetry();
  // What a subscriber throws would end the process.
  const tell = listener(telemetry.lock);
  subscribe("lockstep:lock", (event) => tell(event as LockEvent));
  return telemetry;
}

interface CarryingOptions {
  readonly program: Program;
  readonly lease: number;
  readonly onEvent: RunListener;
}

/** Once the exit status is known: the module may hold something open that would keep the process from ending. */
function leaveSoon(): void {
  setTimeout(() => process.exit(), 0);
}
