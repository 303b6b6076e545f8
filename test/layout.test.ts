import { existsSync, readdirSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { describe, expect, test } from "vitest";

const root = fileURLToPath(new URL("..", import.meta.url));

const stores = readdirSync(`${root}core/stores`, { withFileTypes: true })
  .filter((entry) => entry.isDirectory())
  .map(({ name }) => name);

const read = (path: string) => readFileSync(root + path, "utf8");

describe.each(stores)("the store %s", (name) => {
  test("is a folder with one exported file", () => {
    expect(readdirSync(`${root}core/stores/${name}`)).toContain("index.ts");
    const exported = new RegExp(`^export .*\\b${name}Store\\b`, "m");
    expect(read(`core/stores/${name}/index.ts`)).toMatch(exported);
  });

  test("is known to infra/open.ts, and loaded only when it is used", () => {
    const source = read("infra/open.ts");
    expect(source).toMatch(new RegExp(`^  ${name}: open`, "m"));
    expect(source).toContain(`import("../core/stores/${name}/index.ts")`);
    expect(source).not.toMatch(new RegExp(`^import .*stores/${name}`, "m"));
  });

  test("is an entry point of the package", () => {
    const { exports } = JSON.parse(read("package.json"));
    expect(exports[`./${name}`]?.default).toBe(`./dist/core/stores/${name}/index.js`);
  });

  test("passes the conformance suite in a test of its own", () => {
    expect(existsSync(`${root}test/stores/${name}.test.ts`)).toBe(true);
    expect(read(`test/stores/${name}.test.ts`)).toContain("describeLockStore(");
  });

  test("has a row in the README", () => {
    expect(read("README.md")).toMatch(new RegExp(`^\\| \`${name}\` \\|.*\\|$`, "m"));
  });
});

test("the same migrations stand under every kind of database", () => {
  const kinds = readdirSync(`${root}infra/migrations`);
  expect(kinds.sort()).toEqual(["mysql", "sqlite"]);
  const [first, ...rest] = kinds.map((kind) =>
    readdirSync(`${root}infra/migrations/${kind}`).sort(),
  );
  for (const files of rest) expect(files).toEqual(first);
});
