import type { RunnerTask, RunnerTestFile } from "vitest";
import type { TestProject } from "vitest/node";

/** Reports, after the whole run, the tests that were skipped, and why. */
export default function setUp(project: TestProject): () => void {
  return () => reportSkipped(project.vitest.state.getFiles());
}

/**
 * Reports skipped tests and how to install what they need. With `CI` set, as on build servers, the run fails then. Tests that
 * do not apply to a store are no failure.
 */
function reportSkipped(files: readonly RunnerTestFile[]): void {
  const skipped = Map.groupBy(
    files.flatMap((file) => skippedIn(file)),
    ({ missing }) => missing,
  );
  const inapplicable = Map.groupBy(
    files.flatMap((file) => inapplicableIn(file)),
    (why) => why,
  );
  const others = [...inapplicable].map(([why, tests]) => `  ${tests.length} tests: ${why}\n`);
  if (others.length > 0) process.stderr.write(`\nNot for every store:\n${others.join("")}`);
  if (skipped.size === 0) return;
  const lines = [...skipped].map(([missing, tasks]) => {
    const tests = tasks.filter(({ type }) => type === "test").length;
    return `  ${tests} tests and ${tasks.length - tests} whole files: ${missing}\n`;
  });
  process.stderr.write(`\nSkipped:\n${lines.join("")}`);
  if (!process.env.CI) return;
  process.stderr.write("With CI set, all tests must run: this run has failed.\n");
  process.exitCode = 1;
}

interface Skipped extends Pick<RunnerTask, "type"> {
  readonly missing: string;
}

/** Returns skipped tests with their missing server, or the file if it has no tests. A suite has the reason of its `beforeAll`. */
function skippedIn(task: RunnerTask, inherited?: string): readonly Skipped[] {
  const { type, result, meta } = task;
  const missing = meta.missing ?? inherited;
  if (type === "suite" && task.tasks.length > 0) {
    return task.tasks.flatMap((child) => skippedIn(child, missing));
  }
  return result?.state === "skip" && missing !== undefined ? [{ type, missing }] : [];
}

/** Returns the reason of each test that has skipped itself. */
function inapplicableIn(task: RunnerTask): readonly string[] {
  if (task.type === "suite") return task.tasks.flatMap(inapplicableIn);
  const { result, meta } = task;
  const hasSkipped = result?.state === "skip" && meta.missing === undefined;
  if (!hasSkipped) return [];
  const { note = "no reason given" } = result as typeof result & { readonly note?: string };
  return [note];
}
