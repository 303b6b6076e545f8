import { existsSync, globSync, readdirSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { describe, expect, test } from "vitest";
import { KINDS } from "../infra/servers/kinds.ts";

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

/** Names a store in code. Some names are words of their own. */
const NAMED: Readonly<Record<string, RegExp>> = {
  memory: /stores\/memory|openMemory|"memory:?"/,
  redis: /(?<!"@)redis/i,
};

/** Files that only this store needs, for what no other store has. */
const OWN: Readonly<Record<string, readonly string[]>> = {
  // The readiness of its servers, Workers that lock over its JSON gateway, and the variables that etcdctl sets.
  etcd: [
    "functions/cli/process/hold-and-run.ts",
    "functions/edge/locked-fetch.ts",
    "infra/servers/probes.ts",
  ],
  // The engine in a secret of RDS: without it, the secret is one of MySQL.
  postgres: ["functions/lambda/secret.ts"],
  // The experiments with Redis servers are options of the command.
  redis: ["functions/cli/commands/oversell.ts"],
  // The default store is a SQLite file in the user's folder of states, and texts name it as an example.
  sqlite: [
    "functions/cli/commands/elect.ts",
    "functions/cli/options.ts",
    "infra/config.ts",
    "infra/state-folder.ts",
    "infra/store-url.ts",
  ],
};

/**
 * Files that a new store edits. Not counted: files and folders that have its name, as they are new ones; stores that are built on it (Redlock, Durable
 * Objects); its examination by the doctor; deployments for AWS, which `init` writes; experiments of the incident with the servers of one
 * store; and examples of the command line.
 */
function editedFor(name: string): readonly string[] {
  const code = (path: string) =>
    read(path)
      .replaceAll(/^\s*(?:\/?\*|\/\/).*$/gm, "")
      .replaceAll(/^\s*\.example\(.*$/gm, "");
  const uncounted =
    /^(?:core\/stores\/(?:redlock|cloudflare)|functions\/doctor|functions\/oversell\/(?:scenarios|compare)|infra\/init)\/|^functions\/cli\/commands\/init\.ts$/;
  return globSync("{core,functions,infra}/**/*.ts", { cwd: root }).filter(
    (path) =>
      !uncounted.test(path) &&
      !path.includes(name) &&
      !OWN[name]?.includes(path) &&
      (NAMED[name] ?? new RegExp(name, "i")).test(code(path)),
  );
}

test.each(stores.filter((name) => name !== BOUND))(
  "outside of its folder, five files at the most name the store %s",
  (name) => {
    const edited = editedFor(name);
    expect(edited).toContain("infra/open.ts");
    expect(edited.filter((path) => path.startsWith("core/"))).toEqual([]);
    if (edited.length > 5) expect(edited).toEqual([]);
  },
);

test("infra/compose.yaml has the services of each kind of server, and no others", () => {
  const compose = read("infra/compose.yaml");
  const services = [
    ...compose.slice(compose.indexOf("\nservices:")).matchAll(/^ {2}([a-z0-9-]+):/gm),
  ].map(([, service]) => service);
  const needed = Object.values(KINDS).flatMap(({ containers }) => containers);
  expect(new Set(services)).toEqual(new Set<string>(needed));
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
