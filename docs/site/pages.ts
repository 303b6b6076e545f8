import { existsSync, readFileSync } from "node:fs";
import { dirname, join, normalize } from "node:path";
import { linksOf, pages } from "../../test/support/docs.ts";
import { ROOT } from "./paths.ts";

/** A page of the project, as the site shows it. */
export interface SitePage {
  /** Its path in the project. */
  readonly source: string;

  /** Its path in the site, with the extension md. */
  readonly path: string;
  readonly title: string;
  readonly text: string;
}

/** The changelog is no page of the book: its old entries name what has changed since. */
const sources = new Map([...pages, ["CHANGELOG.md", readFileSync(`${ROOT}CHANGELOG.md`, "utf8")]]);

export const sitePages: readonly SitePage[] = [...sources].map(([source, text]) => ({
  source,
  path: pathOf(source),
  title: titleOf(text),
  text: text.replaceAll(/(?<=\]\()[^)\s]+(?=\))/g, (link) => linkFrom(source, link)),
}));

/** The pictures, programs and other files that pages link to: their paths in the project and in the site. */
export const linkedFiles: ReadonlyMap<string, string> = new Map(
  [...sources].flatMap(([source, text]) =>
    linksOf(text)
      .filter((link) => !/^(?:https?:|#)/.test(link))
      .map((link) => targetOf(source, link))
      .filter((target) => !sources.has(target) && existsSync(join(ROOT, target)))
      .map((target) => [target, pathOf(target)] as const),
  ),
);

export function titleOf(text: string): string {
  return /^# (.*)$/m.exec(text)?.[1] ?? "";
}

/** The folder `docs` becomes the root of the site, and each README the first page of its language. */
export function pathOf(source: string): string {
  if (source === "README.md") return "index.md";
  if (source === "README.zh-CN.md") return "zh-CN/index.md";
  if (/^[A-Z]+\.md$/.test(source)) return source.toLowerCase();
  return source.replace(/^docs\//, "");
}

function linkFrom(source: string, link: string): string {
  if (/^(?:https?:|#)/.test(link)) return link;
  const [, section] = link.split("#");
  return `/${pathOf(targetOf(source, link))}${section === undefined ? "" : `#${section}`}`;
}

function targetOf(source: string, link: string): string {
  return normalize(join(dirname(source), link.split("#")[0] ?? ""));
}
