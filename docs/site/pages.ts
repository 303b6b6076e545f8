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

/** Ends the label of a link from a Chinese page to a page that has no Chinese version. */
export const ENGLISH = "（英文）";

export const sitePages: readonly SitePage[] = [...sources].map(([source, text]) => ({
  source,
  path: pathOf(source),
  title: titleOf(text),
  text: text.replaceAll(
    /\]\(([^)\s]+)\)/g,
    (_, link: string) => `${markOf(source, link)}](${linkFrom(source, link)})`,
  ),
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

/** Returns the Chinese version of an English page, or undefined if there is none. */
export function translationOf(source: string): string | undefined {
  const path = source === "README.md" ? "README.zh-CN.md" : source.replace("docs/", "docs/zh-CN/");
  return path !== source && sources.has(path) ? path : undefined;
}

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

function markOf(source: string, link: string): string {
  if (!isChinese(source) || /^(?:https?:|#)/.test(link)) return "";
  const target = targetOf(source, link);
  const isEnglishAlone =
    sources.has(target) && !isChinese(target) && translationOf(target) === undefined;
  return isEnglishAlone ? ENGLISH : "";
}

function isChinese(source: string): boolean {
  return source.includes("zh-CN");
}

function linkFrom(source: string, link: string): string {
  if (/^(?:https?:|#)/.test(link)) return link;
  const [, section] = link.split("#");
  return `/${pathOf(targetOf(source, link))}${section === undefined ? "" : `#${section}`}`;
}

function targetOf(source: string, link: string): string {
  return normalize(join(dirname(source), link.split("#")[0] ?? ""));
}
