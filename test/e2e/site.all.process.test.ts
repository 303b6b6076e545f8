import type { Browser } from "playwright-core";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { INSTALLING_BROWSER, seriousFaults, startBrowser } from "../support/browser.ts";
import { builtSite } from "../support/site.ts";

const ORIGIN = "http://docs.test";
const WIDTHS = { desktop: { width: 1280, height: 900 }, phone: { width: 390, height: 844 } };

let site: Awaited<ReturnType<typeof builtSite>>;
let browser: Browser;

beforeAll(async () => {
  [site, browser] = await Promise.all([builtSite(), startBrowser()]);
}, INSTALLING_BROWSER);

afterAll(() => browser?.close());

/** Opens a page of the site, and collects what must not happen on it: messages, errors and requests elsewhere. */
async function openPage(path: string, viewport = WIDTHS.desktop) {
  const context = await browser.newContext({ viewport });
  onTestFinished(() => context.close());
  const problems: string[] = [];
  await context.route("**", async (route) => {
    const url = new URL(route.request().url());
    const file = url.origin === ORIGIN ? site.fileOf(decodeURI(url.pathname)) : undefined;
    if (file !== undefined) return route.fulfill({ path: file });
    problems.push(`asked for ${url}`);
    return route.abort();
  });
  const page = await context.newPage();
  page.on("console", (message) => problems.push(`${message.type()}: ${message.text()}`));
  page.on("pageerror", (error) => problems.push(String(error)));
  await page.goto(ORIGIN + path, { waitUntil: "networkidle" });
  // Names of buttons and shortcuts exist once the page's script has taken over.
  await page.waitForFunction("document.querySelector('#app').__vue_app__ !== undefined");
  return { page, problems };
}

test("every link of the site leads to a page, a section or a file of the site", () => {
  expect(site.pages.size).toBeGreaterThan(60);
  const broken = [...site.pages].flatMap(([path, html]) =>
    [...html.matchAll(/ (?:href|src)="([^"]*)"/g)]
      .map(([, link = ""]) => new URL(link.replaceAll("&amp;", "&"), ORIGIN + path))
      .filter(({ origin }) => origin === ORIGIN)
      .filter(({ pathname, hash }) => {
        const file = site.fileOf(decodeURI(pathname));
        const id = decodeURIComponent(hash.slice(1));
        const target = site.pages.get(pathname.replace(/\/$/, "/index.html")) ?? "";
        return file === undefined || (id !== "" && !target.includes(` id="${id}"`));
      })
      .map(({ pathname, hash }) => `${path} links to ${pathname}${hash}`),
  );
  expect(broken).toEqual([]);
});

test("llms.txt names every page of the book, in both languages, and llms-full.txt has their texts", () => {
  const paths = [...site.text("llms.txt").matchAll(/^- \[.*?\]\((\/[^)]*)\)/gm)].map(
    ([, path = ""]) => path,
  );
  expect(paths).toContain("/operations.md");
  expect(paths).toContain("/zh-CN/operations.md");
  for (const path of paths) {
    expect(site.text("llms-full.txt")).toContain(site.text(path).trim());
  }
});

describe.each([
  "/",
  "/zh-CN/",
  "/choosing.html",
  "/operations.html",
  "/reference/api/lockstep/etcd.html",
])("the page %s", (path) => {
  test("is whole and accessible on a desktop and on a phone, and in the dark", async () => {
    const { page, problems } = await openPage(path);
    for (const viewport of Object.values(WIDTHS)) {
      await page.setViewportSize(viewport);
      expect(await seriousFaults(page)).toEqual([]);
      const width = await page.evaluate("document.documentElement.scrollWidth");
      expect(width, "wider than the screen").toBe(viewport.width);
    }
    await page.emulateMedia({ colorScheme: "dark" });
    await page.waitForFunction("document.documentElement.classList.contains('dark')");
    expect(await seriousFaults(page, ["color-contrast"])).toEqual([]);
    expect(problems).toEqual([]);
  });
});

test.each([
  ["/zh-CN/", "phone", "防护令牌", "防护令牌"],
  ["/zh-CN/", "desktop", "防护令牌", "防护令牌"],
  ["/", "desktop", "fencing token", "Fences"],
  ["/", "phone", "fencing token", "Fences"],
] as const)("the search of %s on a %s finds %s", async (path, device, query, section) => {
  const { page, problems } = await openPage(path, WIDTHS[device]);
  // A phone has no keys for shortcuts.
  if (device === "phone") await page.locator(".VPNavBarSearch button").click();
  else await page.keyboard.press("Control+k");
  await page.locator("#localsearch-input").fill(query);
  const results = page.locator("#localsearch-list li").filter({ hasText: section });
  await results.first().click();
  await page.waitForURL(/concepts/);
  expect(problems).toEqual([]);
});
