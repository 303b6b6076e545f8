import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, inject, test } from "vitest";
import { run } from "../../infra/servers/processes.ts";
import { type BundledProgram, PROGRAMS, PROVE, sourceOf } from "../support/bundled-programs.ts";
import { BUNDLERS, type BundleRequest, type BundlerName, FORMATS } from "../support/bundlers.ts";
import { anyTable } from "../support/dynamodb-under-test.ts";
import { EVERY_VERSION } from "../support/matrix.ts";
import { type PackedProject, packedProject } from "../support/packed-project.ts";
import { anyPrefix, redisServer } from "../support/redis-under-test.ts";
import { RestProxy } from "../support/rest-proxy.ts";
import { temporaryDatabase } from "../support/under-test.ts";

type ProgramName = keyof typeof PROGRAMS;

const names = Object.keys(PROGRAMS) as ProgramName[];
const programs: Readonly<Record<ProgramName, BundledProgram>> = PROGRAMS;

async function writePrograms(folder: string): Promise<void> {
  await writeFile(join(folder, "prove.js"), PROVE);
  for (const name of names) await writeFile(entryOf(folder, name), sourceOf(programs[name]));
}

const PEERS = names.flatMap((name) => programs[name].peer ?? []);

const entryOf = (folder: string, name: string) => join(folder, `${name.replace(/\W/g, "-")}.js`);

/** What `npm run test:all` tries with bundlers besides esbuild: the program that reaches every store, and another one. */
const FEW = {
  rollup: { esm: ["a URL"], cjs: ["redis"] },
  webpack: { esm: ["a URL"], cjs: ["postgres"] },
  rspack: { esm: ["a URL"], cjs: ["powertools"] },
} as const;

/** Describes the bundles of every program, each run on its store, and without its client. */
export function describeBundles(bundler: BundlerName): void {
  const isWhole = EVERY_VERSION || bundler === "esbuild";
  describe(`a bundle of ${bundler}`, () => {
    let bare: PackedProject;
    let full: PackedProject;

    beforeAll(async () => {
      bare = await packedProject();
      full = await packedProject(...new Set(PEERS));
      for (const { folder } of [bare, full]) await writePrograms(folder);
    }, 600_000);

    afterAll(async () => {
      await full?.[Symbol.asyncDispose]();
      await bare?.[Symbol.asyncDispose]();
    });

    describe.each(FORMATS)("as %s", (format) => {
      const tried: readonly ProgramName[] = isWhole ? names : FEW[bundler][format];

      test.each(tried)("runs on %s", async (name) => {
        await using settings = await SETTINGS[name]();
        const answer = await bundleAndRun(full, name, settings.value);
        expect(answer).toEqual(expectedOf(name));
      });

      if (bundler === "esbuild" && format === "esm") {
        test("runs on a URL without being minified", async () => {
          await using settings = await SETTINGS["a URL"]();
          const answer = await bundleAndRun(full, "a URL", settings.value, { minify: false });
          expect(answer).toEqual(expectedOf("a URL"));
        });
      }

      test.each(tried.filter((name) => programs[name].peer))(
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
        options: Pick<BundleRequest, "minify"> = {},
      ) {
        const elsewhere = await mkdtemp(join(tmpdir(), "lockstep-bundle-"));
        const beside = programs[name].isPeerBeside ? folder : elsewhere;
        const file = join(beside, `${bundler}-bundle.${format === "esm" ? "mjs" : "cjs"}`);
        try {
          const bundle = await BUNDLERS[bundler]();
          await bundle({ entry: entryOf(folder, name), file, format, ...options });
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
  if (name === "powertools") return ["COMPLETED", { paid: 40 }];
  if (name === "the page of HTTP") return PAGE_FILES;
  const has = (...stores: readonly ProgramName[]) => stores.includes(name);
  return {
    busy: ["LockTimeoutError", "LOCK_TIMEOUT"],
    released: "released",
    ...(!has("memory", "redlock", "zookeeper") && {
      sold: [2, "InventoryError", "UNKNOWN_SKU"],
    }),
    ...(has("memory", "sqlite", "mysql", "postgres", "dynamodb", "a URL") && {
      run: ["completed", "hello you"],
    }),
  };
}

const PAGE_FILES = [
  "favicon-32x32.png",
  "index.html",
  "start.js",
  "swagger-ui-bundle.js",
  "swagger-ui.css",
];

/** The arguments of the call that opens a store, with keys or a database of their own. */
interface Settings extends AsyncDisposable {
  readonly value: readonly unknown[];
}

const [sql] = inject("sqlServers");
const [postgres] = inject("postgresServers");
const [etcd] = inject("etcdServers");
const [zookeeper] = inject("zookeeperServers");

const SETTINGS: Readonly<Record<ProgramName, () => Promise<Settings>>> = {
  memory: async () => noCleanup(),
  sqlite: async () => noCleanup("shop.db"),
  mysql: () => inDatabase(sql, ({ options }) => options),
  postgres: () => inDatabase(postgres, ({ options }) => options),
  dynamodb: async () => noCleanup(await tableOptions()),
  etcd: async () => noCleanup({ endpoints: etcd?.endpoints }, { prefix: `${anyPrefix()}/` }),
  "a client of etcd3": async () =>
    noCleanup({ hosts: etcd?.endpoints }, { prefix: `${anyPrefix()}/` }),
  "etcd's gateway": async () =>
    noCleanup({ endpoints: etcd?.endpoints }, { prefix: `${anyPrefix()}/` }),
  redis: async () => noCleanup(...mastersOf("redis"), { prefix: anyPrefix() }),
  "redis over HTTP": overHttp,
  redlock: async () => noCleanup(mastersOf("redlock"), { prefix: anyPrefix() }),
  zookeeper: async () => noCleanup({ servers: zookeeper?.servers }, { root: `/${anyPrefix()}` }),
  "a URL": () => inDatabase(sql, ({ url }) => url),
  powertools: async () => noCleanup(),
  "the page of HTTP": async () => noCleanup(),
};

function noCleanup(...value: readonly unknown[]): Settings {
  return { value, [Symbol.asyncDispose]: async () => {} };
}

function mastersOf(name: "redis" | "redlock") {
  return redisServer(name).ports.map((port) => ({ host: "127.0.0.1", port }));
}

type Given = Awaited<ReturnType<typeof temporaryDatabase>>;

async function inDatabase(
  server: typeof sql,
  connectionOf: (database: Given) => unknown,
): Promise<Settings> {
  if (!server) throw new Error("there is no SQL server");
  const database = await temporaryDatabase(server);
  return { value: [connectionOf(database)], [Symbol.asyncDispose]: () => database.drop() };
}

async function tableOptions() {
  const { hostname: region, pathname, searchParams } = new URL((await anyTable()).url);
  const credentials = { accessKeyId: "key", secretAccessKey: "secret" };
  return { region, table: pathname.slice(1), endpoint: searchParams.get("endpoint"), credentials };
}

async function overHttp(): Promise<Settings> {
  const proxy = await RestProxy.to(redisServer("redis").ports[0] ?? 0);
  const { url, token } = proxy;
  return {
    value: [{ url, token }, { prefix: anyPrefix() }],
    [Symbol.asyncDispose]: () => proxy[Symbol.asyncDispose](),
  };
}

/** No server is asked before the client is loaded. */
const UNREACHABLE: Readonly<Record<string, readonly unknown[]>> = {
  mysql: [{ host: "127.0.0.1", port: 1, user: "shop", database: "shop" }],
  postgres: [{ host: "127.0.0.1", port: 1, user: "shop", database: "shop" }],
  "a client of etcd3": [{ hosts: ["127.0.0.1:1"] }],
  redis: [{ host: "127.0.0.1", port: 1 }],
  redlock: [[{ host: "127.0.0.1", port: 1 }]],
  "a URL": ["mysql://root@127.0.0.1:1/shop"],
};
