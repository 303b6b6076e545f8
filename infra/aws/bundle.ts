import { mkdir, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const root = fileURLToPath(new URL("../..", import.meta.url));

/**
 * Bundles a module into a self-contained folder: index.js, and the files that index.js loads on demand. The same sources
 * make the same bytes in any directory.
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
    format: "esm",
    platform: "node",
    target: "node24",
    // Node 24 runs `using`, which esbuild would replace all the same.
    supported: { using: true },
    sourcemap: "linked",
    sourcesContent: false,
    chunkNames: "[name]-[hash]",
    legalComments: "none",
    logLevel: "warning",
  });
  await writeFile(join(folder, "package.json"), '{ "type": "module" }\n');
}
