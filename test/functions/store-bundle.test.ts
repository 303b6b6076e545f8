import { fileURLToPath } from "node:url";
import { build } from "esbuild";
import { describe, expect, test } from "vitest";

const root = fileURLToPath(new URL("../..", import.meta.url));

/** The optional clients of all stores. */
const CLIENTS = ["ioredis", "mysql2", "pg"];

/** Bundles one export of a store's entry for Node, without clients. */
async function bundleOf(name: string, entry: string) {
  const { outputFiles, metafile } = await build({
    stdin: {
      contents: `export { ${name} } from "./core/stores/${entry}/index.ts"`,
      resolveDir: root,
    },
    absWorkingDir: root,
    bundle: true,
    minify: true,
    platform: "node",
    format: "esm",
    external: CLIENTS,
    write: false,
    metafile: true,
  });
  const [output] = Object.values(metafile.outputs);
  const used = Object.entries(output?.inputs ?? {}).filter(
    ([, { bytesInOutput }]) => bytesInOutput,
  );
  return { bytes: outputFiles[0]?.contents.length ?? 0, files: used.map(([file]) => file) };
}

/** The most bytes, and the folders of other systems that a store builds on. */
const ENTRIES: readonly (readonly [string, string, number, readonly string[]])[] = [
  ["openMemory", "memory", 60_000, []],
  ["openSqlite", "sqlite", 158_500, ["sql"]],
  ["openMysql", "mysql", 168_000, ["sql"]],
  ["openPostgres", "postgres", 174_500, ["sql"]],
  ["openEtcd", "etcd", 130_000, []],
  ["openEtcdGateway", "etcd", 90_000, []],
  ["openRedis", "redis", 92_000, []],
  ["openRedlock", "redlock", 73_500, ["redis"]],
  ["openDynamodb", "dynamodb", 138_500, []],
  ["openZooKeeper", "zookeeper", 65_000, []],
];

describe.each(ENTRIES)("%s alone", (name, entry, most, shared) => {
  test("is no larger than it has to be, and brings no other store", async () => {
    const { files, bytes } = await bundleOf(name, entry);
    const stores = files.flatMap((file) => /^core\/stores\/(\w+)\//.exec(file)?.[1] ?? []);
    expect([...new Set(stores)].toSorted()).toEqual([entry, ...shared].toSorted());
    expect(files.filter((file) => /^(functions|infra|core\/steps)\//.test(file))).toEqual([]);
    // A store that brings nothing has been measured wrongly.
    expect(bytes).toBeGreaterThan(20_000);
    expect(bytes).toBeLessThan(most);
  });
});
