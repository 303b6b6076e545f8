import { readFileSync } from "node:fs";
import { CHAPTERS } from "./chapters.ts";
import { pathOf, type SitePage, sitePages } from "./pages.ts";
import { ROOT } from "./paths.ts";

/** Returns the list of the English pages for language models. https://llmstxt.org */
export function llmsIndex(): string {
  const chapters = CHAPTERS.map(({ title, pages }) => {
    const lines = pages.map((source) => {
      const page = pageOf(source);
      return [`- [${page.title}](/${page.path})`, sectionsOf(page)].filter(Boolean).join(": ");
    });
    return `## ${title}\n\n${lines.join("\n")}`;
  });
  const { description: summary } = JSON.parse(readFileSync(`${ROOT}package.json`, "utf8"));
  return `# Lockstep\n\n> ${summary}\n\n${chapters.join("\n\n")}\n`;
}

/** Returns the text of all English pages. */
export function llmsFull(): string {
  const pages = CHAPTERS.flatMap((chapter) => chapter.pages).map(pageOf);
  return pages.map(({ path, text }) => `<!-- /${path} -->\n\n${text.trim()}\n`).join("\n");
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
