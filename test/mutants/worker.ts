import { readFileSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { createVitest, type TestRunResult, type TestSpecification } from "vitest/node";
import { fileOf, mutated, type TestedMutant } from "./mutant.ts";

/** What the tests made of a mutant. */
export interface Verdict {
  /** Broken: no test ran. */
  readonly outcome: "caught" | "survived" | "broken";

  /** The first failed test, or why no test ran. */
  readonly by: string | undefined;
}

/** For projects whose tests may take minutes: a mutant often hangs. */
const TIMEOUT = 30_000;

// One vitest for all mutants: its servers are started once.
const vitest = await createVitest("test", {
  watch: false,
  bail: 1,
  maxWorkers: 1,
  testTimeout: TIMEOUT,
  hookTimeout: TIMEOUT,
  reporters: [{}],
});

/** This process has a copy of the project of its own, and tries one mutant after the other in it. */
process.on("message", async (mutant: TestedMutant) => {
  process.send?.(await tried(mutant));
});

process.on("disconnect", () => void vitest.close().finally(() => process.exit()));

async function tried(mutant: TestedMutant): Promise<Verdict> {
  const path = fileURLToPath(fileOf(mutant));
  const original = readFileSync(path, "utf8");
  try {
    replace(path, mutated(mutant));
    return await run(mutant);
  } catch (error) {
    return { outcome: "broken", by: String(error) };
  } finally {
    replace(path, original);
  }
}

function replace(path: string, source: string): void {
  writeFileSync(path, source);
  vitest.invalidateFile(path);
}

async function run({ tests, only }: TestedMutant): Promise<Verdict> {
  if (only === undefined) vitest.resetGlobalTestNamePattern();
  else vitest.setGlobalTestNamePattern(new RegExp(only));
  let ran = 0;
  for (const test of tests) {
    const specifications = await vitest.globTestSpecifications([test]);
    const result = await vitest.runTestSpecifications(specifications);
    const { count, failure } = outcomeOf(result, specifications);
    ran += count;
    if (failure !== undefined) return { outcome: ran > 0 ? "caught" : "broken", by: failure };
  }
  return { outcome: ran > 0 ? "survived" : "broken", by: undefined };
}

/** Returns how many tests ran, and the first failure. */
function outcomeOf(
  { testModules, unhandledErrors }: TestRunResult,
  specifications: readonly TestSpecification[],
): { readonly count: number; readonly failure: string | undefined } {
  const ids = new Set(specifications.map(({ moduleId }) => moduleId));
  const modules = testModules.filter(({ moduleId }) => ids.has(moduleId));
  const tests = modules.flatMap(({ children }) => [...children.allTests()]);
  const ended = tests.filter((test) => ["passed", "failed"].includes(test.result().state));
  const failed = ended.find((test) => test.result().state === "failed");
  const suites = modules.flatMap(({ children }) => [...children.allSuites()]);
  const errors = [...[...modules, ...suites].flatMap((one) => one.errors()), ...unhandledErrors];
  return { count: ended.length, failure: failed?.fullName ?? messageOf(errors[0]) };
}

function messageOf(error: unknown): string | undefined {
  return error === undefined ? undefined : String(Object(error).message);
}
