import type { DefaultTheme } from "vitepress";
import { CHAPTERS } from "./chapters.ts";
import { ENGLISH, pathOf, sitePages, titleOf, translationOf } from "./pages.ts";

/** Returns the sidebars of both languages. The generated pages stand in the English one. */
export function sidebars(generated: ReadonlyMap<string, string>) {
  const reference = [...generated].map(([path, text]) => itemOf(path, titleOf(text)));
  const english: DefaultTheme.SidebarItem[] = CHAPTERS.map(({ title, pages }) => ({
    text: title,
    items: [...pages.map(pageItem), ...(title === "Reference" ? reference : [])],
  }));
  const chinese: DefaultTheme.SidebarItem[] = CHAPTERS.map(({ chinese: text, pages }) => ({
    text,
    items: pages.map(chineseItem),
  }));
  return { english, chinese };
}

function pageItem(source: string): DefaultTheme.SidebarItem {
  const page = sitePages.find((one) => one.source === source);
  if (!page) throw new Error(`there is no page ${source}`);
  return itemOf(pathOf(source), page.title);
}

function chineseItem(source: string): DefaultTheme.SidebarItem {
  const translation = translationOf(source);
  if (translation !== undefined) return pageItem(translation);
  const item = pageItem(source);
  return { ...item, text: `${item.text}${ENGLISH}` };
}

function itemOf(path: string, text: string): DefaultTheme.SidebarItem {
  return { text, link: `/${path}`.replace(/(?:index)?\.md$/, "") };
}
