import { readFileSync } from "node:fs";
import { type DefaultTheme, defineConfig } from "vitepress";
import { PAGES, SIDEBARS, SITE } from "../paths.ts";
import { searchTerms } from "../search-terms.ts";
import { slugOf } from "../slug.ts";

// Imports nothing from outside of this folder: VitePress's esbuild is too old for the project's tsconfig.json.
const { english, chinese } = JSON.parse(readFileSync(SIDEBARS, "utf8"));

const DESCRIPTION =
  "Locks with fencing tokens, workflow steps that resume, and stock that never oversells";
const DESCRIPTION_ZH = "带防护令牌的分布式锁、可恢复的工作流步骤、不会超卖的库存";

/** A padlock. */
const ICON = `data:image/svg+xml,${encodeURIComponent(
  '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 16 16"><path d="M4 7V5a4 4 0 0 1 8 0v2" fill="none" stroke="#3451b2" stroke-width="2"/><rect x="2" y="7" width="12" height="8" rx="1" fill="#3451b2"/></svg>',
)}`;

const miniSearch = {
  options: { tokenize: searchTerms },
  searchOptions: {
    tokenize: searchTerms,
    // Every word of a query must stand in the section, its last letters excepted.
    combineWith: "AND" as const,
    boost: { title: 4, titles: 2, text: 1 },
  },
};

export default defineConfig({
  title: "Lockstep",
  head: [["link", { rel: "icon", href: ICON }]],
  srcDir: PAGES,
  // Files that the site serves as they are.
  srcExclude: ["public/**"],
  outDir: SITE,
  markdown: {
    // Others have too little contrast.
    theme: { light: "github-light-high-contrast", dark: "github-dark-high-contrast" },
    // Links to sections are GitHub's.
    anchor: { slugify: slugOf },
    config(md) {
      // An indented block gets the frame of a fenced one.
      md.renderer.rules.code_block = (tokens, index, options, env, self) => {
        const [token] = tokens.slice(index);
        if (token) token.info = "text";
        return md.renderer.rules.fence?.(tokens, index, options, env, self) ?? "";
      };
    },
  },
  vite: { build: { chunkSizeWarningLimit: 2_000 } },
  themeConfig: {
    outline: [2, 3],
    // A switch of the language leads to its front page: not every page is translated.
    i18nRouting: false,
    search: {
      provider: "local",
      options: { miniSearch, locales: { "zh-CN": { translations: chineseSearch() } } },
    },
  },
  locales: {
    root: {
      label: "English",
      lang: "en",
      description: DESCRIPTION,
      themeConfig: {
        nav: [
          { text: "Start", link: "/start" },
          { text: "Which one?", link: "/choosing" },
          { text: "Concepts", link: "/concepts" },
          { text: "Runbook", link: "/operations" },
          { text: "Reference", link: "/reference/" },
        ],
        sidebar: english,
      },
    },
    "zh-CN": {
      label: "中文",
      lang: "zh-CN",
      description: DESCRIPTION_ZH,
      themeConfig: {
        nav: [
          { text: "五分钟上手", link: "/zh-CN/start" },
          { text: "选型", link: "/zh-CN/choosing" },
          { text: "概念", link: "/zh-CN/concepts" },
          { text: "运维手册", link: "/zh-CN/operations" },
          { text: "参考（英文）", link: "/reference/" },
        ],
        sidebar: chinese,
        outline: { level: [2, 3], label: "本页内容" },
        docFooter: { prev: "上一页", next: "下一页" },
        darkModeSwitchLabel: "外观",
        lightModeSwitchTitle: "切换到浅色模式",
        darkModeSwitchTitle: "切换到深色模式",
        sidebarMenuLabel: "目录",
        returnToTopLabel: "回到顶部",
        langMenuLabel: "切换语言",
        skipToContentLabel: "跳到正文",
      },
    },
  },
});

function chineseSearch(): NonNullable<DefaultTheme.LocalSearchOptions["translations"]> {
  return {
    button: { buttonText: "搜索", buttonAriaLabel: "搜索" },
    modal: {
      displayDetails: "显示详情",
      resetButtonTitle: "清除",
      backButtonTitle: "关闭搜索",
      noResultsText: "没有结果：",
      footer: { selectText: "选择", navigateText: "切换", closeText: "关闭" },
    },
  };
}
