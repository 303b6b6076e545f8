import { globSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { slugOf } from "../../docs/site/slug.ts";

const root = fileURLToPath(new URL("../..", import.meta.url));

/** Every page, by its path. */
export const pages = textsOf("{README*,CONTRIBUTING}.md", "docs/**/*.md");

/** Every file of the folder `examples`, by its name. */
export const examples: ReadonlyMap<string, string> = new Map(
  [...textsOf("examples/*")].map(([path, text]) => [path.replace("examples/", ""), text]),
);

function textsOf(...patterns: readonly string[]): ReadonlyMap<string, string> {
  const paths = globSync(patterns, { cwd: root, exclude: ["docs/site/**"] });
  return new Map(paths.map((path) => [path, readFileSync(join(root, path), "utf8")]));
}

/** Throws if there is no such page. */
export function pageAt(path: string): string {
  const page = pages.get(path);
  if (page === undefined) throw new Error(`there is no page ${path}`);
  return page;
}

/** The code blocks of a page in one of these languages, or in any. */
export function blocksOf(page: string, ...languages: readonly string[]): readonly string[] {
  const language = languages.length > 0 ? `(?:${languages.join("|")})` : "\\w*";
  const block = new RegExp(`^ *\`\`\`${language}\\n(.*?)^ *\`\`\``, "gms");
  return [...page.matchAll(block)].map(([, code = ""]) => code);
}

/** The anchors of a page's sections, as GitHub makes them. */
export function anchorsOf(page: string): readonly string[] {
  const prose = page.replaceAll(/^ *```.*?^ *```/gms, "");
  return [...prose.matchAll(/^#+ (.*)$/gm)].map(([, title = ""]) => slugOf(title));
}

/** The targets of a page's links and pictures. */
export function linksOf(page: string): readonly string[] {
  return [...page.matchAll(/\]\(([^)\s]+)\)/g)].map(([, link = ""]) => link);
}
