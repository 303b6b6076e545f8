import { subscribe } from "node:diagnostics_channel";
import type { Argv } from "yargs";
import type { Journal } from "../../core/journal/journal.ts";
import type { LockEvent } from "../../core/lock/events.ts";
import { listener } from "../../core/lock/listener.ts";
import type { LockStore } from "../../core/lock/lock.ts";
import { keepProcessAlive } from "../../core/lock/time.ts";
import type { Runtime } from "../../core/steps/contract.ts";
import type { RunListener } from "../../core/steps/events.ts";
import { createRuntime } from "../../core/steps/runtime.ts";
import type { AnyWorkflow } from "../../core/steps/workflow.ts";
import type { TransactionalInventory } from "../../core/stores/transactional-inventory.ts";
import { type AnyStore, processLabel } from "../../infra/open.ts";
import { openTelemetryIfRegistered } from "../telemetry/if-registered.ts";
import { incidentTelemetry } from "../telemetry/incidents.ts";
import { combineTelemetry, type PartialTelemetry, type Telemetry } from "../telemetry/telemetry.ts";
import {
  loadWorkflowModule,
  type WorkflowModule,
  type WorkflowServices,
} from "../worker/workflow-module.ts";
import { locksOption, type StoreArgs, storeOption } from "./options.ts";
import { withLocks, withStore } from "./store.ts";
import { showFailure } from "./terminal/outcome.ts";

export interface RuntimeArgs extends StoreArgs {
  readonly locks: string | undefined;
  readonly lease: string;
}

/** Adds the options of commands that execute runs. */
export function runtimeOptions<T>(yargs: Argv<T>): Argv<T & RuntimeArgs> {
  return locksOption(storeOption(yargs), "the store of the steps' locks").option("lease", {
    type: "string",
    requiresArg: true,
    default: "30s",
    describe: "how long other processes leave a run alone after its last renewal",
  });
}

export interface ModuleArgs {
  readonly module: string | undefined;
}

/** Adds the option of commands that read or write the values of runs. */
export function moduleOption<T>(yargs: Argv<T>): Argv<T & ModuleArgs> {
  return yargs.option("module", {
    type: "string",
    requiresArg: true,
    describe: "the module that exports the `codec` of the values",
  });
}

export async function codecOf({ module }: ModuleArgs): Promise<WorkflowModule["codec"]> {
  return module === undefined ? undefined : (await loadWorkflowModule(module)).codec;
}

/** The options of commands that call runs, and execute none. */
export interface CallArgs extends StoreArgs, ModuleArgs {
  readonly locks: string | undefined;
}

export function callOptions<T>(yargs: Argv<T>): Argv<T & CallArgs> {
  return locksOption(
    moduleOption(storeOption(yargs)),
    "the store of the workers' locks, which tells them at once",
  );
}

/** Opens the stores, calls `work` with a runtime without workflows, and closes the stores in every case. */
export async function withCalls<T>(
  args: CallArgs,
  work: (runtime: Runtime) => Promise<T>,
): Promise<T> {
  const codec = await codecOf(args);
  return withLocks(args.locks, (lockStore) =>
    withStore(args, (opened) => {
      const { locks } = lockStore ?? opened;
      return work(createRuntime({ journal: opened.journal, locks, codec }));
    }),
  );
}

export const MODULE_HELP = `FILE is a TypeScript or JavaScript module. Every workflow that it exports
can be run, and every entity handled. Its default export may be a function
from { locks, database, inventory } to workflows and entities that use the store.
Its export \`codec\` encodes the values of the runs.`;

interface RuntimeSetup {
  readonly program: WorkflowModule;
  readonly lease: number;
  readonly onEvent: RunListener;

  /** Receives the events of locks, stock and runs as well. */
  readonly observer?: PartialTelemetry | undefined;
}

/** The runtime of a module's workflows, and what it was made of. */
export interface ModuleRuntime extends Pick<RunServices, "services" | "addresses"> {
  readonly runtime: Runtime;
  readonly workflows: readonly AnyWorkflow[];
}

/** Opens the stores, loads the module's workflows, calls `work`, and closes the stores in every case. */
export async function withRuntime<T>(
  args: RuntimeArgs,
  { program, lease, onEvent, observer }: RuntimeSetup,
  work: (loaded: ModuleRuntime) => Promise<T>,
): Promise<T> {
  const execute = async ({ services, journal, owner, addresses, telemetry }: RunServices) => {
    const { workflows, entities } = await program.create(services);
    const { locks } = services;
    const options = { journal, locks, workflows, entities, owner, lease, codec: program.codec };
    const runtime = createRuntime({
      ...options,
      ...combineTelemetry({ runtime: { onEvent } }, telemetry).runtime,
    });
    return work({ runtime, workflows, services, addresses });
  };
  return withServices(args, execute, observer);
}

/** The services for the execution of runs. */
export interface RunServices {
  readonly services: WorkflowServices;
  readonly journal: Journal;

  /** The name of this process, for operators. */
  readonly owner: string;

  /** The URLs of the stores, without secrets. */
  readonly addresses: { readonly store: string; readonly locks: string };

  /** Reports to OpenTelemetry if the process was started with its SDK. */
  readonly telemetry: Telemetry;
}

/**
 * Opens the stores, calls `work`, closes the stores in every case, and then ends the process. Incidents are left in the store
 * of the locks. The observer receives the events as well.
 */
export async function withServices<T>(
  args: RuntimeArgs,
  work: (opened: RunServices) => Promise<T>,
  observer?: PartialTelemetry,
): Promise<T> {
  let locks: LockStore | undefined;
  const incidents = incidentTelemetry(() => locks);
  const telemetry = await connectTelemetry(incidents, ...(observer ? [observer] : []));
  // A step may wait for something that does not keep the process alive, such as the timer of an AbortSignal.
  const letExit = keepProcessAlive();
  try {
    return await withLocks(args.locks, (lockStore) => {
      const execute = (opened: AnyStore) => {
        const { journal } = opened;
        locks = (lockStore ?? opened).locks;
        const services: WorkflowServices = {
          locks,
          inventory: opened.inventory as TransactionalInventory,
          // Throws where there is none.
          get database() {
            return opened.database;
          },
        };
        const owner = processLabel();
        const addresses = { store: opened.url, locks: (lockStore ?? opened).url };
        return work({ services, journal, owner, addresses, telemetry });
      };
      return withStore(args, execute, { onStockEvent: telemetry.stock });
    });
  } finally {
    letExit();
    exitSoon();
  }
}

async function connectTelemetry(...observers: readonly PartialTelemetry[]): Promise<Telemetry> {
  const otel = await openTelemetryIfRegistered();
  const shown = { runtime: { onError: showFailure } };
  const telemetry = combineTelemetry(
    ...(otel ? [otel.openTelemetry()] : []),
    ...[shown, ...observers],
  );
  // An error of a subscriber would end the process.
  const notify = listener(telemetry.lock);
  subscribe("lockstep:lock", (event) => notify(event as LockEvent));
  return telemetry;
}

/** Ends the process once its exit status is set: open handles of the user's module would keep it running. */
function exitSoon(): void {
  setTimeout(() => process.exit(), 0);
}
