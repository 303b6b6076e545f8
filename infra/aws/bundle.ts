import { cp, mkdir, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

/** Clients that do not work in a bundle: etcd3 reads its protocol from files beside it. Use etcd's gateway instead. */
const NOT_BUNDLED = ["etcd3"];

/**
 * CommonJS packages call `require`, which modules do not have. In every file, because a client is in one of its own
 * that is loaded when its store is used.
 */
const BANNER =
  'import{createRequire as lockstepRequire}from"node:module";const require=lockstepRequire(import.meta.url);';

const root = fileURLToPath(new URL("../..", import.meta.url));

/**
 * Bundles a module into a folder that needs nothing else: index.js, and what that loads when it is used. The same
 * sources make the same bytes, wherever they lie.
 */
export async function bundle(module: string, folder: string): Promise<void> {
  await rm(folder, { recursive: true, force: true });
  await mkdir(folder, { recursive: true });
  await build({
    absWorkingDir: root,
    entryPoints: [{ out: "index", in: module }],
    outdir: folder,
    bundle: true,
    splitting: true,
    minify: true,
    // The names of errors stand in the journal and in answers.
    keepNames: true,
    format: "esm",
    platform: "node",
    target: "node22",
    chunkNames: "[name]-[hash]",
    legalComments: "none",
    external: NOT_BUNDLED,
    banner: { js: BANNER },
    logLevel: "warning",
  });
  await writeFile(join(folder, "package.json"), '{ "type": "module" }\n');
  // They are looked for beside the code.
  await cp(join(root, "infra/migrations"), join(folder, "migrations"), { recursive: true });
}
