import { isBuiltin } from "node:module";
import { fileURLToPath } from "node:url";
import { build, type Metafile } from "esbuild";

const root = fileURLToPath(new URL("../..", import.meta.url));

export interface WebBundle {
  readonly code: string;

  /** External imports and Node modules in the bundle. Should be empty. */
  readonly foreign: readonly string[];
}

/** Bundles a module for a runtime with Web APIs only. The module may import the entries of Lockstep that run there. */
export async function bundleForWeb(contents: string): Promise<WebBundle> {
  const { outputFiles, metafile } = await build({
    stdin: { contents, resolveDir: root, sourcefile: "worker.js" },
    absWorkingDir: root,
    alias: {
      "lockstep/edge": "./functions/edge/index.ts",
      "lockstep/inventory": "./core/inventory/index.ts",
      "lockstep/cloudflare": "./functions/cloudflare/index.ts",
      "lockstep/steps": "./core/steps/index.ts",
    },
    bundle: true,
    minify: true,
    format: "esm",
    platform: "neutral",
    mainFields: ["module", "main"],
    target: "es2024",
    // Otherwise esbuild would stop at these modules, and the rest of the bundle would stay unknown.
    external: ["node:*", "cloudflare:*"],
    write: false,
    metafile: true,
  });
  return { code: outputFiles[0]?.text ?? "", foreign: foreignIn(metafile) };
}

/** esbuild's own helpers, and the modules of Workers. */
const OWN = /^(?:<runtime>|cloudflare:.*)$/;

function foreignIn({ inputs }: Metafile): readonly string[] {
  const imports = Object.entries(inputs).flatMap(([importer, input]) =>
    input.imports.map(({ path, external = false }) => ({ importer, path, external })),
  );
  return imports
    .filter(({ path, external }) => isBuiltin(path) || (external && !OWN.test(path)))
    .map(({ importer, path }) => `${importer} imports ${path}`);
}
