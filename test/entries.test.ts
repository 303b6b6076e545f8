import { globSync, readFileSync } from "node:fs";
import { join, posix } from "node:path";
import { fileURLToPath } from "node:url";
import { describe, expect, test } from "vitest";

const root = fileURLToPath(new URL("..", import.meta.url));
const read = (path: string) => readFileSync(join(root, path), "utf8");
const { exports, bin } = JSON.parse(read("package.json"));

const sourceOf = (built: string) => built.replace(/^(\.\/)?dist\//, "").replace(/\.js$/, ".ts");

const entries = Object.entries<{ readonly default?: string }>(exports).flatMap(
  ([name, { default: built }]) => (built ? [[name, sourceOf(built)] as const] : []),
);

/** Imports that load a module together with the importing one. */
const STATIC = /^(?:import|export)(?! type\b)(?:[^"';]* from)? "(\.[^"]+)";$/gm;

/** Imports of every kind, those of types and the scripts of child processes included. */
const ALL = /(?:import\(|new URL\(|^(?:import|export)(?:[^"';]* from)? )["`](\.[^"`$]+)/gm;

/** Returns the modules that a module reaches through imports that match `pattern`. */
function reachedFrom(source: string, pattern: RegExp, reached = new Set<string>()): Set<string> {
  if (reached.has(source)) return reached;
  reached.add(source);
  for (const [, specifier = ""] of read(source).matchAll(pattern)) {
    const target = posix.join(posix.dirname(source), specifier);
    // The script of a child process is named without its extension.
    const [module] = globSync([target, `${target}.ts`], { cwd: root });
    if (module?.endsWith(".ts")) reachedFrom(module, pattern, reached);
  }
  return reached;
}

describe("the package entry", () => {
  const ONLY_FOR_COMMANDS = /^(functions\/(cli|dev|oversell)|infra\/(clock|servers))\//;

  test.each(entries)("%s loads no incident, no test server and no clock", (_, source) => {
    const loaded = [...reachedFrom(source, STATIC)];
    expect(loaded.filter((path) => ONLY_FOR_COMMANDS.test(path))).toEqual([]);
  });
});

test("an entry or the command uses every packed module", () => {
  const used = new Set<string>();
  for (const [, source] of entries) reachedFrom(source, ALL, used);
  reachedFrom(sourceOf(bin.lockstep), ALL, used);
  const { include, exclude } = JSON.parse(read("tsconfig.build.json"));
  const packed = globSync(
    include.map((folder: string) => `${folder}/**/*.ts`),
    { cwd: root },
  )
    .filter((path) => !exclude.some((left: string) => path.startsWith(left)))
    // A declaration is not packed: it describes JavaScript, which is.
    .filter((path) => !path.endsWith(".d.ts"));
  expect(packed.filter((path) => !used.has(path)).toSorted()).toEqual([]);
});
