import { execFile } from "node:child_process";
import { globSync } from "node:fs";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join, relative } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { expect, test } from "vitest";

const run = promisify(execFile);
const root = fileURLToPath(new URL("..", import.meta.url));

/** The code of a docstring: its lines that are indented by four spaces more than its prose. */
const EXAMPLE = /(?:^ *\* {5}.*\n(?:^ *\*\n(?=^ *\* {5}))?)+/gm;

async function examples(): Promise<ReadonlyMap<string, string>> {
  const found = new Map<string, string>();
  for (const file of globSync("{core,functions,infra}/**/*.ts", { cwd: root })) {
    const source = await readFile(join(root, file), "utf8");
    for (const [code] of source.matchAll(EXAMPLE)) {
      found.set(`${file}, example ${found.size + 1}`, code.replace(/^ *\* {0,5}/gm, ""));
    }
  }
  return found;
}

/** Every name that an entry of the package exports, with the source of the entry. */
async function exportedNames(): Promise<ReadonlyMap<string, string>> {
  const { exports } = JSON.parse(await readFile(join(root, "package.json"), "utf8"));
  const names = new Map<string, string>();
  for (const { default: path } of Object.values<{ default?: string }>(exports)) {
    if (path === undefined) continue;
    const source = join(root, path.replace("./dist/", "").replace(/\.js$/, ".ts"));
    for (const name of Object.keys(await import(source))) names.set(name, source);
  }
  return names;
}

test("every example of a docstring compiles with what the entries export", async () => {
  const [all, names] = await Promise.all([examples(), exportedNames()]);
  expect(all.size).toBeGreaterThan(9);
  const folder = await mkdtemp(join(tmpdir(), "lockstep-docstrings-"));
  const include: string[] = [];
  for (const [title, code] of all) {
    const used = [...names].filter(([name]) => new RegExp(`\\b${name}\\(`).test(code));
    const imports = used.map(([name, source]) => `import { ${name} } from "${source}";\n`);
    const file = `${title.replace(/\W+/g, "-")}.mts`;
    await writeFile(join(folder, file), `${imports.join("")}${code}\nexport {};\n`);
    include.push(file);
  }
  const compilerOptions = {
    typeRoots: [join(root, "node_modules/@types")],
    rewriteRelativeImportExtensions: false,
    allowImportingTsExtensions: true,
  };
  const configuration = {
    extends: join(root, "tsconfig.json"),
    compilerOptions,
    include,
    exclude: [],
  };
  await writeFile(join(folder, "tsconfig.json"), JSON.stringify(configuration));
  const tsc = join(root, "node_modules/typescript/bin/tsc");
  const compiling = run(process.execPath, [tsc, "-p", folder], { cwd: root });
  const { stdout } = await compiling.catch((error) => error);
  await rm(folder, { recursive: true });
  expect(stdout.replaceAll(relative(root, folder), "")).toBe("");
}, 240_000);
