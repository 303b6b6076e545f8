import { readFileSync } from "node:fs";
import { CHAPTERS } from "./chapters.ts";
import { pathOf, type SitePage, sitePages, translationOf } from "./pages.ts";
import { ROOT } from "./paths.ts";

/** Returns the list of all pages for language models, those in Chinese last. https://llmstxt.org */
export function llmsIndex(): string {
  const chapters = CHAPTERS.map(({ title, pages }) => chapterOf(title, pages));
  chapters.push(chapterOf("中文", translations));
  const { description: summary } = JSON.parse(readFileSync(`${ROOT}package.json`, "utf8"));
  return `# Lockstep\n\n> ${summary}\n\n${chapters.join("\n\n")}\n`;
}

/** Returns the text of all pages. */
export function llmsFull(): string {
  const pages = [...CHAPTERS.flatMap((chapter) => chapter.pages), ...translations].map(pageOf);
  return pages.map(({ path, text }) => `<!-- /${path} -->\n\n${text.trim()}\n`).join("\n");
}

/** The Chinese pages, in the order of the English ones. */
const translations = CHAPTERS.flatMap(({ pages }) =>
  pages.flatMap((page) => translationOf(page) ?? []),
);

function chapterOf(title: string, sources: readonly string[]): string {
  const lines = sources.map((source) => {
    const page = pageOf(source);
    return [`- [${page.title}](/${page.path})`, sectionsOf(page)].filter(Boolean).join(": ");
  });
  return `## ${title}\n\n${lines.join("\n")}`;
}

function pageOf(source: string): SitePage {
  const page = sitePages.find(({ path }) => path === pathOf(source));
  if (!page) throw new Error(`there is no page ${source}`);
  return page;
}

/** Returns the titles of a page's sections. */
function sectionsOf({ text }: SitePage): string {
  const prose = text.replaceAll(/^ *```.*?^ *```/gms, "");
  return [...prose.matchAll(/^## (.*)$/gm)].map(([, title]) => title).join(", ");
}
