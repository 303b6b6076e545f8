import { readFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";

export interface PageFile {
  readonly type: string;
  readonly body: string;
}

/** The folder of the page. A build has its script, bundled. */
const folder = new URL("./page/", import.meta.url);

/** Returns the files of the page by their paths. */
export async function pageFiles(): Promise<ReadonlyMap<string, PageFile>> {
  const read = (name: string) => readFile(new URL(name, folder), "utf8");
  const [html, css, script] = await Promise.all([
    read("index.html"),
    read("style.css"),
    import.meta.url.endsWith(".ts") ? bundled() : read("main.js"),
  ]);
  return new Map([
    ["/", { type: "text/html; charset=utf-8", body: html }],
    ["/console/style.css", { type: "text/css; charset=utf-8", body: css }],
    ["/console/main.js", { type: "text/javascript; charset=utf-8", body: script }],
  ]);
}

/** Bundles the script from its sources, as `npm run build` does. */
async function bundled(): Promise<string> {
  const { build } = await import("esbuild");
  const { outputFiles } = await build({
    entryPoints: [fileURLToPath(new URL("main.ts", folder))],
    bundle: true,
    format: "esm",
    write: false,
  });
  return outputFiles[0]?.text ?? "";
}
