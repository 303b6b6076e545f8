import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { importUnbundled } from "../../core/stores/import-unbundled.js";
import { importError } from "../../core/stores/peer.ts";
import type { DocsPage } from "./options.ts";

/**
 * Loads Swagger UI from the package `swagger-ui-dist`. The page contacts no other host.
 *
 * Rejects with a TypeError when the package is not installed.
 */
export async function swaggerPage(): Promise<DocsPage> {
  const assets = await packageFolder();
  const asset = async (name: string, type: string) => {
    const body = new Uint8Array(await readFile(join(assets, name)));
    return [name, { type, body }] as const;
  };
  const text = (name: string, type: string, body: string) => {
    return [
      name,
      { type: `${type}; charset=utf-8`, body: new TextEncoder().encode(body) },
    ] as const;
  };
  return {
    files: new Map([
      text("index.html", "text/html", INDEX),
      text("start.js", "text/javascript", START),
      ...(await Promise.all([
        asset("swagger-ui.css", "text/css; charset=utf-8"),
        asset("swagger-ui-bundle.js", "text/javascript; charset=utf-8"),
        asset("favicon-32x32.png", "image/png"),
      ])),
    ]),
  };
}

async function packageFolder(): Promise<string> {
  try {
    const folder = await importUnbundled<() => string>("swagger-ui-dist/absolute-path.js");
    return folder();
  } catch (error) {
    throw importError("swagger-ui-dist", error, "the page");
  }
}

const INDEX = `<!doctype html>
<html lang="en">
  <head>
    <meta charset="utf-8">
    <title>Lockstep</title>
    <link rel="icon" href="favicon-32x32.png">
    <link rel="stylesheet" href="swagger-ui.css">
  </head>
  <body>
    <div id="page"></div>
    <script src="swagger-ui-bundle.js"></script>
    <script src="start.js"></script>
  </body>
</html>
`;

const START = `SwaggerUIBundle({
  url: new URL("../openapi.json", location.href).href,
  dom_id: "#page",
  deepLinking: true,
  // Otherwise Swagger UI sends the document to a public validator.
  validatorUrl: null,
});
`;
