import { readFile } from "node:fs/promises";
import type { Page, PageFile } from "./page.ts";

/**
 * Swagger UI, from the package `swagger-ui-dist`: no other host is asked for anything.
 *
 * Rejects with a TypeError where that package is not installed.
 */
export async function swaggerPage(): Promise<Page> {
  const assets = folder();
  const asset = async (name: string, type: string): Promise<[string, PageFile]> => [
    name,
    { type, body: new Uint8Array(await readFile(new URL(name, assets))) },
  ];
  const text = (name: string, type: string, body: string): [string, PageFile] => [
    name,
    { type: `${type}; charset=utf-8`, body },
  ];
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

function folder(): string {
  try {
    return import.meta.resolve("swagger-ui-dist/package.json");
  } catch (error) {
    const problem = "the page needs the package swagger-ui-dist: npm install swagger-ui-dist";
    throw new TypeError(problem, { cause: error });
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
  // Otherwise it would ask another host what it thinks of the document.
  validatorUrl: null,
});
`;
