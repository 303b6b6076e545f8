import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, inject, test } from "vitest";
import { run } from "../../infra/servers/processes.ts";
import { type BundledProgram, PROGRAMS, PROVE, sourceOf } from "../support/bundled-programs.ts";
import { BUNDLERS, type BundlerName, FORMATS } from "../support/bundlers.ts";
import { WHOLE_MATRIX } from "../support/matrix.ts";
import { type PackedProject, packedProject } from "../support/packed-project.ts";
import { anyPrefix, redisServer } from "../support/redis-under-test.ts";
import { temporaryDatabase } from "../support/under-test.ts";

type ProgramName = keyof typeof PROGRAMS;

const names = Object.keys(PROGRAMS) as ProgramName[];
const programs: Readonly<Record<ProgramName, BundledProgram>> = PROGRAMS;

async function writePrograms(folder: string): Promise<void> {
  await writeFile(join(folder, "prove.js"), PROVE);
  for (const name of names) await writeFile(entryOf(folder, name), sourceOf(programs[name]));
}

const entryOf = (folder: string, name: string) => join(folder, `${name.replace(/\W/g, "-")}.js`);

/** Describes the bundles of every program, each run on its store, and without its client. By default of esbuild alone. */
export function describeBundles(bundler: BundlerName): void {
  describe.runIf(WHOLE_MATRIX || bundler === "esbuild")(`a bundle of ${bundler}`, () => {
    let bare: PackedProject;
    let full: PackedProject;

    beforeAll(async () => {
      bare = await packedProject();
      full = await packedProject("etcd3", "ioredis", "mysql2");
      for (const { folder } of [bare, full]) await writePrograms(folder);
    }, 600_000);

    afterAll(async () => {
      await full?.[Symbol.asyncDispose]();
      await bare?.[Symbol.asyncDispose]();
    });

    describe.each(FORMATS)("as %s", (format) => {
      test.each(names)("runs on %s", async (name) => {
        await using settings = await SETTINGS[name]();
        const answer = await bundleAndRun(full, name, settings.value);
        expect(answer).toEqual(expectedOf(name));
      });

      test.each(names.filter((name) => programs[name].peer))(
        "without its client says what to install for %s",
        async (name) => {
          const { peer } = programs[name];
          const answer = await bundleAndRun(bare, name, UNREACHABLE[name] ?? []);
          const message = expect.stringContaining(`needs the package ${peer}: npm install ${peer}`);
          expect(answer).toEqual({ name: "TypeError", message });
        },
      );

      /** The bundle runs in a folder without packages, unless the client has to lie beside it. */
      async function bundleAndRun(
        { folder }: PackedProject,
        name: ProgramName,
        settings: readonly unknown[],
      ) {
        const elsewhere = await mkdtemp(join(tmpdir(), "lockstep-bundle-"));
        const beside = programs[name].isPeerBeside ? folder : elsewhere;
        const file = join(beside, `${bundler}-bundle.${format === "esm" ? "mjs" : "cjs"}`);
        try {
          const bundle = await BUNDLERS[bundler]();
          await bundle({ entry: entryOf(folder, name), file, format });
          const env = { ...process.env, SETTINGS: JSON.stringify(settings) };
          return JSON.parse(await run(process.execPath, [file], { cwd: elsewhere, env }));
        } finally {
          await rm(elsewhere, { recursive: true, force: true });
        }
      }
    });
  });
}

/** The expected answer of a program, by the parts of its store. */
function expectedOf(name: ProgramName) {
  const has = (...stores: readonly ProgramName[]) => stores.includes(name);
  return {
    busy: ["LockTimeoutError", "LOCK_TIMEOUT"],
    released: "released",
    ...(!has("memory", "redlock", "zookeeper") && {
      sold: [2, "InventoryError", "UNKNOWN_SKU"],
    }),
    ...(has("memory", "sqlite", "mysql", "a URL") && { run: ["completed", "hello you"] }),
  };
}

/** The arguments of the call that opens a store, with keys or a database of their own. */
interface Settings extends AsyncDisposable {
  readonly value: readonly unknown[];
}

const [sql] = inject("sqlServers");
const [etcd] = inject("etcdServers");
const [zookeeper] = inject("zookeeperServers");

const SETTINGS: Readonly<Record<ProgramName, () => Promise<Settings>>> = {
  memory: async () => noCleanup(),
  sqlite: async () => noCleanup("shop.db"),
  mysql: () => inDatabase(({ options }) => options),
  etcd: async () => noCleanup({ endpoints: etcd?.endpoints }, { prefix: `${anyPrefix()}/` }),
  "a client of etcd3": async () =>
    noCleanup({ hosts: etcd?.endpoints }, { prefix: `${anyPrefix()}/` }),
  "etcd's gateway": async () =>
    noCleanup({ endpoints: etcd?.endpoints }, { prefix: `${anyPrefix()}/` }),
  redis: async () => noCleanup(...mastersOf("redis"), { prefix: anyPrefix() }),
  redlock: async () => noCleanup(mastersOf("redlock"), { prefix: anyPrefix() }),
  zookeeper: async () => noCleanup({ servers: zookeeper?.servers }, { root: `/${anyPrefix()}` }),
  "a URL": () => inDatabase(({ url }) => url),
};

function noCleanup(...value: readonly unknown[]): Settings {
  return { value, [Symbol.asyncDispose]: async () => {} };
}

function mastersOf(name: "redis" | "redlock") {
  return redisServer(name).ports.map((port) => ({ host: "127.0.0.1", port }));
}

type Given = Awaited<ReturnType<typeof temporaryDatabase>>;

async function inDatabase(connectionOf: (database: Given) => unknown): Promise<Settings> {
  if (!sql) throw new Error("there is no SQL server");
  const database = await temporaryDatabase(sql);
  return { value: [connectionOf(database)], [Symbol.asyncDispose]: () => database.drop() };
}

/** No server is asked before the client is loaded. */
const UNREACHABLE: Readonly<Record<string, readonly unknown[]>> = {
  mysql: [{ host: "127.0.0.1", port: 1, user: "shop", database: "shop" }],
  "a client of etcd3": [{ hosts: ["127.0.0.1:1"] }],
  redis: [{ host: "127.0.0.1", port: 1 }],
  redlock: [[{ host: "127.0.0.1", port: 1 }]],
  "a URL": ["mysql://root@127.0.0.1:1/shop"],
};
