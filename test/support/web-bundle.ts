import { isBuiltin } from "node:module";
import { fileURLToPath } from "node:url";
import { build, type Metafile } from "esbuild";

const root = fileURLToPath(new URL("../..", import.meta.url));

export interface WebBundle {
  readonly code: string;

  /** What the bundle would have to find at run time, and what it has from Node: neither should be there. */
  readonly foreign: readonly string[];
}

/** A module and all that it imports, as for a runtime that has nothing but Web APIs. It may import "lockstep/edge". */
export async function bundleForWeb(contents: string): Promise<WebBundle> {
  const { outputFiles, metafile } = await build({
    stdin: { contents, resolveDir: root, sourcefile: "worker.js" },
    absWorkingDir: root,
    alias: { "lockstep/edge": "./functions/edge/index.ts" },
    bundle: true,
    minify: true,
    format: "esm",
    platform: "neutral",
    mainFields: ["module", "main"],
    target: "es2024",
    // Otherwise these would be errors of esbuild's, and it would not be known what else there is.
    external: ["node:*"],
    write: false,
    metafile: true,
  });
  return { code: outputFiles[0]?.text ?? "", foreign: foreignIn(metafile) };
}

/** What esbuild calls its own helpers, which stand in the bundle. */
const HELPERS = "<runtime>";

function foreignIn({ inputs }: Metafile): readonly string[] {
  const imports = Object.entries(inputs).flatMap(([importer, input]) =>
    input.imports.map(({ path, external = false }) => ({ importer, path, external })),
  );
  return imports
    .filter(({ path, external }) => isBuiltin(path) || (external && path !== HELPERS))
    .map(({ importer, path }) => `${importer} imports ${path}`);
}
