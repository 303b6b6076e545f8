import { readFileSync } from "node:fs";
import { dirname, resolve } from "node:path";
import { BaseSequencer, type TestSpecification } from "vitest/node";

/**
 * Starts the longest files first, so that the run does not end with one of them. Vitest knows the durations of earlier runs.
 * In a fresh clone, the length of a file's source, with the conformance suites that it runs, stands for its duration.
 */
export default class LongestFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const { cache } = this.ctx;
    if (files.every((file) => cache.getTestSpecificationResult(file))) return super.sort(files);
    const lengths = new Map(files.map((file) => [file, lengthOf(file.moduleId)]));
    return files.toSorted((a, b) => (lengths.get(b) ?? 0) - (lengths.get(a) ?? 0));
  }
}

function lengthOf(path: string, seen = new Set<string>()): number {
  seen.add(path);
  const source = readFileSync(path, "utf8");
  return [...source.matchAll(/from "(\.[^"]+)"/g)]
    .map(([, imported = ""]) => resolve(dirname(path), imported))
    .filter((imported) => imported.includes("/test/conformance/") && !seen.has(imported))
    .reduce((sum, suite) => sum + lengthOf(suite, seen), source.length);
}
