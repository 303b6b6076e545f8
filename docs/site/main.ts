/**
 * Builds the site into docs/site/build/site: npm run docs
 *
 * The pages are those of the project, with links of the site. The reference is generated from the sources. Needs no network.
 */
import { copyFile, mkdir, readFile, rm, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { build } from "vitepress";
import { llmsFull, llmsIndex } from "./llms.ts";
import { linkedFiles, sitePages } from "./pages.ts";
import { PAGES, ROOT, SIDEBARS, SITE } from "./paths.ts";
import { writeApi } from "./reference/api.ts";
import { commandLinePage } from "./reference/command-line.ts";
import { httpReference } from "./reference/http.ts";
import { referencePage } from "./reference/index.ts";
import { schemaPages } from "./reference/schema.ts";
import { sidebars } from "./sidebars.ts";

await rm(PAGES, { recursive: true, force: true });
for (const { path, text } of sitePages) {
  await write(path, text);
  await write(`public/${path}`, text); // for readers of llms.txt
}
for (const [source, path] of linkedFiles) {
  const copy = join(PAGES, "public", path);
  await mkdir(dirname(copy), { recursive: true });
  await copyFile(join(ROOT, source), copy);
}

const { page: http, json } = await httpReference();
const generated = new Map([
  ["reference/index.md", referencePage()],
  ["reference/command-line.md", await commandLinePage()],
  ["reference/http.md", http],
  ...schemaPages(),
]);
for (const [path, text] of generated) await write(path, text);
await write("public/openapi.json", json);
const api = "reference/api/index.md";
await writeApi(dirname(join(PAGES, api)));
generated.set(api, await readFile(join(PAGES, api), "utf8"));

await write("public/llms.txt", llmsIndex());
await write("public/llms-full.txt", llmsFull());

await writeFile(SIDEBARS, JSON.stringify(sidebars(generated)));
await build(import.meta.dirname);
process.stdout.write(`The site is in ${SITE}\n`);

async function write(path: string, text: string): Promise<void> {
  const file = join(PAGES, path);
  await mkdir(dirname(file), { recursive: true });
  await writeFile(file, text);
}
