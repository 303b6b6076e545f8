import { access } from "node:fs/promises";
import { resolve } from "node:path";
import { pathToFileURL } from "node:url";
import type { Database } from "../../core/database/sql.ts";
import type { LockStore } from "../../core/lock/lock.ts";
import type { RuntimeOptions } from "../../core/steps/contract.ts";
import type { AnyEntity } from "../../core/steps/entity/entity.ts";
import type { AnyWorkflow } from "../../core/steps/workflow.ts";
import type { TransactionalInventory } from "../../core/stores/transactional-inventory.ts";

/** The services that the workflows of a module may use. */
export interface WorkflowServices {
  readonly locks: LockStore;

  /** The database of the journal, in which `step.tx` runs. Throws a TypeError where the journal is in no database. */
  readonly database: Database;

  /** The stock in the same store. Without `within` where that is no database. */
  readonly inventory: TransactionalInventory;
}

/** A loaded module with workflows. */
export interface WorkflowModule {
  /** The export of the name `codec`, which encodes the values of runs. */
  readonly codec: RuntimeOptions["codec"];

  /**
   * Returns the exported workflows and entities, and those that the default export creates. Rejects with a TypeError for
   * no workflow.
   */
  create(services: WorkflowServices): Promise<ModuleContents>;
}

interface ModuleContents {
  readonly workflows: readonly AnyWorkflow[];
  readonly entities: readonly AnyEntity[];
}

/**
 * Loads a module. The module exports workflows and entities, alone, in arrays or in objects; its default export may also
 * be a function from `WorkflowServices` to these. The export `codec` encodes their values.
 *
 * Rejects with a TypeError for a missing file.
 */
export async function loadWorkflowModule(file: string): Promise<WorkflowModule> {
  const path = resolve(file);
  await access(path).catch(() => {
    throw new TypeError(`the file ${file} does not exist`);
  });
  const module = await runModule(file, () => import(pathToFileURL(path).href));
  const { default: main, ...exported } = module as Readonly<Record<string, unknown>>;
  return {
    codec: exported.codec as RuntimeOptions["codec"],
    async create(services) {
      const made = typeof main === "function" ? await runModule(file, () => main(services)) : main;
      const contents = [...new Set([exported, made].flatMap(contentsIn))];
      const workflows = contents.filter(isWorkflow);
      if (workflows.length > 0) return { workflows, entities: contents.filter(isEntity) };
      throw new TypeError(
        `${file} exports neither a workflow nor a function that returns workflows`,
      );
    },
  };
}

/** Runs code of the module. An error of the module must not look like a usage error of the command line. */
async function runModule<T>(file: string, code: () => T | Promise<T>): Promise<T> {
  try {
    return await code();
  } catch (error) {
    const stack = error instanceof Error ? error.stack : String(error);
    throw new Error(`${file} cannot be loaded: ${stack}`, { cause: error });
  }
}

function contentsIn(value: unknown): readonly (AnyWorkflow | AnyEntity)[] {
  if (isWorkflow(value) || isEntity(value)) return [value];
  if (typeof value !== "object" || value === null) return [];
  return Object.values(value).flatMap((one) =>
    isWorkflow(one) || isEntity(one) || Array.isArray(one) ? contentsIn(one) : [],
  );
}

/** Checks the shape: the module may use another copy of this package. */
function isWorkflow(value: unknown): value is AnyWorkflow {
  if (typeof value !== "object" || value === null) return false;
  const { name, version, prepare, run } = value as Partial<AnyWorkflow>;
  const isNamed = typeof name === "string" && typeof version === "number";
  return isNamed && typeof prepare === "function" && typeof run === "function";
}

function isEntity(value: unknown): value is AnyEntity {
  if (typeof value !== "object" || value === null) return false;
  const { name, state, handlers } = value as Partial<AnyEntity>;
  return typeof name === "string" && state !== undefined && typeof handlers === "object";
}

/** Returns the newest version of the named workflow, or the only workflow. Throws a TypeError if neither exists. */
export function chooseWorkflow(
  workflows: readonly AnyWorkflow[],
  name: string | undefined,
): AnyWorkflow {
  const names = [...new Set(workflows.map((one) => one.name))].sort();
  const [only] = names;
  if (name === undefined && names.length > 1) {
    throw new TypeError(`--workflow must say which of ${names.join(", ")}`);
  }
  const wanted = name ?? only;
  const [newest] = workflows
    .filter((one) => one.name === wanted)
    .sort((a, b) => b.version - a.version);
  if (newest) return newest;
  throw new TypeError(`--workflow must be one of ${names.join(", ")}, not "${name}"`);
}
