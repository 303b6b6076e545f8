import { globSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import type { Results } from "./page.ts";

const ROOT = new URL("../../", import.meta.url);

/** Reads what the page is made of. */
export function readResults(): Results {
  return {
    proof: json("proof"),
    mutants: json("mutants"),
    benchmarks: json("benchmarks"),
    peers: json("peers"),
    tests: countTests(),
    defects: countOf(/`npx vitest run /g, read("docs/defects.md")),
  };
}

function json(name: string) {
  return JSON.parse(read(`docs/${name}.json`));
}

function read(path: string): string {
  return readFileSync(new URL(path, ROOT), "utf8");
}

/** A test of each case, or of several stores, counts as one. */
function countTests(): number {
  const files = globSync("test/**/*.ts", {
    cwd: fileURLToPath(ROOT),
    exclude: ["**/node_modules/**"],
  });
  return files.reduce((sum, file) => sum + countOf(/^\s*test(?:\.\w+)?\(/gm, read(file)), 0);
}

function countOf(pattern: RegExp, text: string): number {
  return text.match(pattern)?.length ?? 0;
}
