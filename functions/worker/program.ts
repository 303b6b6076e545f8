import { access } from "node:fs/promises";
import { resolve } from "node:path";
import { pathToFileURL } from "node:url";
import type { Database } from "../../core/database/sql.ts";
import type { SqlInventory } from "../../core/inventory/sql.ts";
import type { LockStore } from "../../core/lock/lock.ts";
import type { AnyWorkflow } from "../../core/steps/workflow.ts";
import type { KeyOf } from "./keys.ts";

/** What a module's workflows may use. */
export interface Services {
  readonly locks: LockStore;

  /** Where the journal is: what `step.tx` does belongs here. */
  readonly database: Database;

  /** The stock in it. */
  readonly inventory: SqlInventory;
}

/** A module with workflows, loaded and not yet given its services. */
export interface Program {
  readonly keyOf: KeyOf | undefined;

  /** All workflows that it exports, and those that its default export makes. Rejects with a TypeError for none. */
  workflows(services: Services): Promise<readonly AnyWorkflow[]>;
}

/**
 * Loads a module. Its workflows are whatever it exports that is one, alone, in lists or in objects; its default
 * export may also be a function from `Services` to such. It may export `keyOf` for a worker.
 *
 * Rejects with a TypeError where there is no such file.
 */
export async function loadProgram(file: string): Promise<Program> {
  const path = resolve(file);
  await access(path).catch(() => {
    throw new TypeError(`there is no file ${file}`);
  });
  const module = await named(file, () => import(pathToFileURL(path).href));
  const { default: main, keyOf, ...exported } = module as Readonly<Record<string, unknown>>;
  if (keyOf !== undefined && typeof keyOf !== "function") {
    throw new TypeError(`${file} exports a keyOf that is no function`);
  }
  return {
    keyOf: keyOf as KeyOf | undefined,
    async workflows(services) {
      const made = typeof main === "function" ? await named(file, () => main(services)) : main;
      const workflows = [...new Set([exported, made].flatMap(workflowsIn))];
      if (workflows.length > 0) return workflows;
      throw new TypeError(`${file} exports no workflow, and no function that answers with some`);
    },
  };
}

/** Runs code of the module: whatever it throws is no bad input of the command line. */
async function named<T>(file: string, code: () => T | Promise<T>): Promise<T> {
  try {
    return await code();
  } catch (error) {
    const problem = error instanceof Error ? error.stack : String(error);
    throw new Error(`${file} cannot be loaded: ${problem}`, { cause: error });
  }
}

function workflowsIn(value: unknown): readonly AnyWorkflow[] {
  if (isWorkflow(value)) return [value];
  if (typeof value !== "object" || value === null) return [];
  return Object.values(value).flatMap((one) =>
    isWorkflow(one) || Array.isArray(one) ? workflowsIn(one) : [],
  );
}

/** Not by identity: the module may use another copy of this package. */
function isWorkflow(value: unknown): value is AnyWorkflow {
  if (typeof value !== "object" || value === null) return false;
  const { name, version, prepare, run } = value as Partial<AnyWorkflow>;
  const isNamed = typeof name === "string" && typeof version === "number";
  return isNamed && typeof prepare === "function" && typeof run === "function";
}

/** The newest version of the workflow of that name; without a name, the only one. Throws a TypeError for neither. */
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
