import { existsSync, globSync, readdirSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { describe, expect, test } from "vitest";

const root = fileURLToPath(new URL("..", import.meta.url));

const stores = readdirSync(`${root}core/stores`, { withFileTypes: true })
  .filter((entry) => entry.isDirectory())
  .map(({ name }) => name)
  // core/stores/sql is shared by the SQL stores.
  .filter((name) => name !== "sql")
  .sort();

/** Opened by a binding of Workers, not by a URL. Its entry adds the class of an object. */
const BOUND = "cloudflare";

const read = (path: string) => readFileSync(root + path, "utf8");

describe.each(stores.filter((name) => name !== BOUND))("the store %s", (name) => {
  test("is a folder with one exported file", () => {
    expect(readdirSync(`${root}core/stores/${name}`)).toContain("index.ts");
    const exported = new RegExp(`^export async function open${name}\\b`, "im");
    expect(read(`core/stores/${name}/index.ts`)).toMatch(exported);
  });

  test("is known to infra/open.ts, and loaded only when it is used", () => {
    const source = read("infra/open.ts");
    expect(source).toMatch(new RegExp(`schemes: \\["${name}"[,\\]]`));
    expect(source).toContain(`import("../core/stores/${name}/index.ts")`);
    expect(source).not.toMatch(new RegExp(`^import (?!type).*stores/${name}`, "m"));
  });

  test("is an entry point of the package", () => {
    const { exports } = JSON.parse(read("package.json"));
    expect(exports[`./${name}`]?.default).toBe(`./dist/core/stores/${name}/index.js`);
  });
});

describe.each(stores)("the store %s", (name) => {
  test("passes the conformance suite in a test of its own", () => {
    const [file = ""] = readdirSync(`${root}test/stores`).filter((each) =>
      each.startsWith(`${name}.`),
    );
    for (const suite of ["describeLockStore(", "describeElections("])
      expect(read(`test/stores/${file}`)).toContain(suite);
  });

  test("has a row in the README, with a link to its page", () => {
    const link = `\\[\`${name}\`\\]\\(docs/stores/${name}\\.md\\)`;
    expect(read("README.md")).toMatch(new RegExp(`^\\| ${link} \\|.*\\|$`, "m"));
  });
});

/** Files outside of a SQL store's folder that name it in their code. Older stores are in examples and templates as well. */
test("a new SQL database is one folder, its examination by the doctor, and five files at the most that name it", () => {
  const code = (path: string) => read(path).replaceAll(/^\s*(?:\/?\*|\/\/).*$/gm, "");
  const naming = globSync("{core,functions,infra}/**/*.ts", { cwd: root }).filter(
    (path) =>
      !/^(?:core\/stores\/postgres|functions\/doctor)\//.test(path) && /postgres/i.test(code(path)),
  );
  expect(naming).toContain("infra/open.ts");
  expect(naming.length).toBeLessThanOrEqual(5);
  expect(naming.filter((path) => path.startsWith("core/"))).toEqual([]);
});

test("every SQL database has the same migrations", () => {
  const namesOf = (kind: string) =>
    [...read(`core/stores/${kind}/migrations.ts`).matchAll(/name: "(\d{4}-[^"]+)"/g)].map(
      ([, name]) => name,
    );
  const kinds = stores.filter((name) => existsSync(`${root}core/stores/${name}/dialect.ts`));
  const [first, ...rest] = kinds.map(namesOf);
  expect(first?.length).toBeGreaterThan(4);
  for (const names of rest) expect(names).toEqual(first);
});

test("no two modules of core export a type or a class of the same name", () => {
  const written = globSync("core/**/*.ts", { cwd: root, exclude: ["**/etcd/client/messages.ts"] });
  const exported = written.flatMap((path) =>
    [...read(path).matchAll(/^export (?:abstract )?(?:interface|type|class) (\w+)/gm)].map(
      ([, name = ""]) => ({ name, path }),
    ),
  );
  expect(exported.length).toBeGreaterThan(200);
  const twice = [...Map.groupBy(exported, ({ name }) => name)].filter(([, all]) => all.length > 1);
  expect(twice).toEqual([]);
});
