import { build } from "esbuild";

/** The optional clients of all stores. */
const CLIENTS = ["ioredis", "mysql2", "pg"];

/** What opens a store, its entry, the most bytes that users get, and the folders of other systems that it builds on. */
export const STORE_BUNDLES: readonly (readonly [string, string, number, readonly string[]])[] = [
  ["openMemory", "memory", 63_500, []],
  ["openSqlite", "sqlite", 163_500, ["sql"]],
  ["openMysql", "mysql", 173_000, ["sql"]],
  ["openPostgres", "postgres", 180_000, ["sql"]],
  ["openEtcd", "etcd", 136_500, []],
  ["openEtcdGateway", "etcd", 96_000, []],
  ["openRedis", "redis", 97_500, []],
  ["openRedlock", "redlock", 79_500, ["redis"]],
  ["openDynamodb", "dynamodb", 143_500, []],
  ["openZooKeeper", "zookeeper", 69_500, []],
];

/** Bundles one export of a module for Node, without clients. */
export async function bundleOf(name: string, module: string, folder: string) {
  const { outputFiles, metafile } = await build({
    stdin: { contents: `export { ${name} } from "${module}"`, resolveDir: folder },
    absWorkingDir: folder,
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
