import type { DefaultTheme } from "vitepress";
import { CHAPTERS } from "./chapters.ts";
import { pathOf, sitePages, titleOf } from "./pages.ts";

/** Returns the sidebars of both languages. The generated pages stand in the English one. */
export function sidebars(generated: ReadonlyMap<string, string>) {
  const reference = [...generated].map(([path, text]) => itemOf(path, titleOf(text)));
  const english: DefaultTheme.SidebarItem[] = CHAPTERS.map(({ title, pages }) => ({
    text: title,
    items: [...pages.map(pageItem), ...(title === "Reference" ? reference : [])],
  }));
  const chinese: DefaultTheme.SidebarItem[] = CHAPTERS.map(({ chinese: text, pages }) => ({
    text,
    items: pages.map((source) => pageItem(translationOf(source) ?? source)),
  }));
  return { english, chinese };
}

function pageItem(source: string): DefaultTheme.SidebarItem {
  const page = sitePages.find((one) => one.source === source);
  if (!page) throw new Error(`there is no page ${source}`);
  return itemOf(pathOf(source), page.title);
}

function itemOf(path: string, text: string): DefaultTheme.SidebarItem {
  return { text, link: `/${path}`.replace(/(?:index)?\.md$/, "") };
}

function translationOf(source: string): string | undefined {
  const path = source === "README.md" ? "README.zh-CN.md" : source.replace("docs/", "docs/zh-CN/");
  return sitePages.find((one) => one.source === path && path !== source)?.source;
}
