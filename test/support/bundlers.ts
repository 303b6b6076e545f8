import { existsSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";
import { run } from "../../infra/servers/processes.ts";
import { oncePerRun } from "./once-per-run.ts";

export const FORMATS = ["esm", "cjs"] as const;

export interface BundleRequest {
  /** The absolute path of the program. */
  readonly entry: string;

  /** The absolute path of the one file to make. */
  readonly file: string;
  readonly format: (typeof FORMATS)[number];

  /** Default true. For esbuild. */
  readonly minify?: boolean;
}

/** Makes one file for Node with the defaults of a bundler, minified. Rejects when the bundler reports an error. */
export type Bundle = (request: BundleRequest) => Promise<void>;

const FOLDER = new URL("../bundlers/", import.meta.url);

export const BUNDLERS = {
  esbuild: async () => esbuild,
  rollup: () => load("rollup"),
  webpack: () => load("webpack"),
  rspack: () => load("rspack"),
} satisfies Record<string, () => Promise<Bundle>>;

export type BundlerName = keyof typeof BUNDLERS;

const esbuild: Bundle = async ({ entry, file, format, minify = true }) => {
  await build({
    entryPoints: [entry],
    outfile: file,
    format,
    bundle: true,
    platform: "node",
    minify,
    logLevel: "silent",
  });
};

/** Loads a module of the folder. The compiler does not see the import: the packages may not be installed. */
async function load(name: string): Promise<Bundle> {
  await oncePerRun("bundlers", install);
  return (await import(new URL(`${name}.ts`, FOLDER).href)).bundle;
}

async function install(): Promise<void> {
  if (existsSync(new URL("node_modules/.package-lock.json", FOLDER))) return;
  await run("npm", ["ci", "--no-audit", "--no-fund"], { cwd: fileURLToPath(FOLDER) });
}
