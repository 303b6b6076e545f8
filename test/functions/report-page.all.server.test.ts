import { readFile, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { pathToFileURL } from "node:url";
import type { Page } from "playwright-core";
import { expect, onTestFinished, test } from "vitest";
import { LABELS_WIDTH } from "../../functions/oversell/draw-incident.ts";
import type { Handling, Observations } from "../../functions/oversell/observations.ts";
import type { StrategyReport } from "../../functions/oversell/report.ts";
import { MAX_REPORT_ORDERS, renderReport } from "../../functions/oversell/report-page.ts";
import { STRATEGIES, type Strategy } from "../../functions/oversell/strategy.ts";
import type { TraceEvent } from "../../functions/oversell/trace.ts";
import { INSTALLING_BROWSER, seriousFaults, startBrowser } from "../support/browser.ts";
import { cli } from "../support/cli.ts";
import { temporaryFile } from "../support/under-test.ts";

test("the report draws what was counted, is used by keyboard, and loads nothing", {
  timeout: INSTALLING_BROWSER,
}, async () => {
  const { file, remove } = await temporaryFile();
  onTestFinished(remove);
  const report = join(dirname(file), "incident.html");
  const only = ["--strategy", "as-in-the-incident", "--strategy", "lockstep"];
  const size = ["--stock", "20", "--buyers", "24", "--workers", "3", "--duplicates", "0"];
  const faults = ["--slow", "1", "--freezes", "3", "--kills", "0"];
  const output = ["--json", "--store", `sqlite:${file}`, "--report", report];
  const { stdout } = await cli("oversell", ...only, ...size, ...faults, ...output);
  const strategies: readonly StrategyReport[] = JSON.parse(stdout).strategies;
  const html = await readFile(report, "utf8");
  expect(html.length).toBeLessThan(1_000_000);
  expect(html).toContain("lockstep oversell --strategy as-in-the-incident");
  expect(html).toContain(` · server SQLite ${process.versions.sqlite} · `);

  const browser = await startBrowser();
  onTestFinished(() => browser.close());
  const page = await browser.newPage();
  const said: string[] = [];
  const requests: string[] = [];
  page.on("console", (message) => said.push(`${message.type()}: ${message.text()}`));
  page.on("pageerror", (error) => said.push(String(error)));
  page.on("request", (request) => requests.push(request.url()));
  const { href } = pathToFileURL(report);
  await page.goto(href);

  expect(strategies[0]?.overlaps).toBeGreaterThan(0);
  expect(strategies[1]?.refused).toBeGreaterThan(0);
  for (const { name, overlaps, refused, sold } of strategies) {
    const drawn = page.locator(`.replay[data-strategy="${name}"]`);
    expect(await drawn.locator(".second").count()).toBe(overlaps);
    expect(await drawn.locator(".message.refused").count()).toBe(refused);
    expect(await drawn.locator(".sale, .bad-mark").count()).toBe(sold);
  }

  const text = (id: string) => page.locator(id).innerText();
  const [first, second] = strategies;
  expect(await text("#headline")).toBe(`20 in stock, ${first?.sold} sold`);
  expect(await text("#sentence")).toContain("still believes that it has it");
  await page.locator("#scrubber").focus();
  const before = await text("#sentence");
  await page.keyboard.press("ArrowRight");
  expect(await text("#sentence")).not.toBe(before);
  await page.keyboard.press("Home");
  expect(await text("#sentence")).toContain("Process ");
  expect(await page.locator("#scrubber").inputValue()).toBe("0");
  await page.locator("#next").focus();
  await page.keyboard.press("Enter");
  expect(await page.locator("#scrubber").inputValue()).not.toBe("0");

  await page.getByRole("radio").first().focus();
  await page.keyboard.press("ArrowRight");
  expect(await text("#headline")).toBe(`20 in stock, ${second?.sold} sold`);
  expect(await page.locator(".replay:visible").getAttribute("data-strategy")).toBe("lockstep");

  const told = page.locator(".replay:visible .told-text");
  await page.locator("#scrubber").focus();
  await page.keyboard.press("Home");
  while (!/ sells| claims/.test(await text("#sentence"))) await page.keyboard.press("ArrowRight");
  const fence = /fence \S+(?=\))/.exec(await text("#sentence"))?.[0];
  expect(await told.textContent()).toMatch(new RegExp(`^${fence}: (sold|claims the stock)$`));

  for (const width of [1_280, 360]) {
    await page.setViewportSize({ width, height: 800 });
    for (const colorScheme of ["light", "dark"] as const) {
      await page.emulateMedia({ colorScheme });
      expect(await seriousFaults(page)).toEqual([]);
      await expectRedOverlaps(page);
    }
    expect(await page.evaluate("document.documentElement.scrollWidth")).toBe(width);
  }
  expect(said).toEqual([]);
  expect(requests).toEqual([href]);
});

test("a report of as many orders as are allowed is below 1 MB, and can be printed", {
  timeout: INSTALLING_BROWSER,
}, async () => {
  const { file, remove } = await temporaryFile();
  onTestFinished(remove);
  const report = join(dirname(file), "incident.html");
  const setting = { command: "lockstep oversell", facts: {} };
  const html = await renderReport([longSale(), longSale(), longSale()], setting);
  expect(html.length).toBeLessThan(1_000_000);
  await writeFile(report, html);

  const browser = await startBrowser();
  onTestFinished(() => browser.close());
  const page = await browser.newPage({ viewport: { width: PAPER, height: 700 } });
  await page.goto(pathToFileURL(report).href);
  await page.emulateMedia({ media: "print" });
  const { strips, width, paper } = await page.evaluate<Printed>(`(() => {
    const replay = document.querySelector(".replay");
    const matrixOf = (use) => {
      const { a, d, e, f } = use.getScreenCTM();
      return { a, d, e, f };
    };
    const strips = [...replay.querySelectorAll(".strip")].map((strip) => ({
      parts: [...strip.querySelectorAll("use")].map(matrixOf),
      right: strip.getBoundingClientRect().right,
    }));
    const width = Number(replay.querySelector(".scroll svg").getAttribute("width"));
    return { strips, width, paper: document.documentElement.scrollWidth };
  })()`);
  await expectRedOverlaps(page);
  expect(strips.length).toBeGreaterThan(1);
  let shown = 0;
  for (const { parts, right } of strips) {
    const [names, lanes] = parts as [Matrix, Matrix];
    expect(lanes).toEqual({ a: names.a, d: names.a, e: expect.any(Number), f: names.f });
    // 12 pixels on a screen.
    expect(12 * lanes.a).toBeGreaterThan(8);
    expect(right).toBeLessThanOrEqual(PAPER);
    // The part of the drawing at the strip's left edge: where the strip before has ended.
    const left = (names.e + LABELS_WIDTH * names.a - lanes.e) / lanes.a;
    expect(left).toBeCloseTo(shown, 0);
    shown = (right - lanes.e) / lanes.a;
  }
  expect(shown).toBeGreaterThanOrEqual(width);
  expect(paper).toBe(PAPER);
  for (const hidden of ["#scrubber", "fieldset", "#sentence", ".scroll"])
    expect(await page.locator(hidden).first().isVisible()).toBe(false);
});

/** Overlaps are red, and hatched for those who do not see red. */
async function expectRedOverlaps(page: Page): Promise<void> {
  const [overlap, ground, hatch] = await page.evaluate<readonly string[]>(`[
    getComputedStyle(document.querySelector(".replay .both")).fill,
    getComputedStyle(document.querySelector("#hatched .harmful")).fill,
    getComputedStyle(document.querySelector("#hatched .hatch")).stroke,
  ]`);
  expect(overlap).toContain("#hatched");
  const [red = 0, green = 0, blue = 0] = ground?.match(/\d+/g)?.map(Number) ?? [];
  expect(red).toBeGreaterThan(2 * Math.max(green, blue));
  expect(hatch).not.toBe(ground);
}

/** The width of landscape paper between its margins, in pixels. */
const PAPER = 980;

/** How something is scaled (a, d) and moved (e, f). */
type Matrix = Readonly<Record<"a" | "d" | "e" | "f", number>>;

interface Printed {
  /** The names and the lanes of each strip, and its right edge. */
  readonly strips: readonly { readonly parts: readonly Matrix[]; readonly right: number }[];

  /** The width of the drawing, and of the paper. */
  readonly width: number;
  readonly paper: number;
}

/** A third of the most orders of a report, with the strategy that sends the most requests: each takes 41 ms, and one of twenty six times as long. */
function longSale(): Observations {
  const orders = MAX_REPORT_ORDERS / 3;
  const handlings = Array.from({ length: orders }, (_, i): Handling => {
    const at = (millis: number) => i * 47.123 + millis * (i % 20 === 0 ? 6 : 1);
    const sentAt = (millis: number) => ({ sentAt: at(millis - 1.7) });
    const trace: TraceEvent[] = [
      { type: "asks", at: at(0) },
      { type: "holds", at: at(3), token: String(1_764_000_000_000_123n + BigInt(i) * 47_123n) },
      { type: "calls", at: at(3.1) },
      { type: "identified", at: at(8) },
      { type: "claimed", at: at(13), ...sentAt(13) },
      { type: "reads", at: at(20), ...sentAt(20), stock: orders - i },
      { type: "sold", at: at(38), ...sentAt(38), stock: orders - i - 1 },
      { type: "releases", at: at(41) },
    ];
    return { worker: i % 6, orderId: `order-${i}`, fault: undefined, answer: "sold", trace };
  });
  const sales = handlings.map(({ orderId }) => orderId);
  return {
    strategy: STRATEGIES.find(({ name }) => name === "fence-claimed") as Strategy,
    stock: orders,
    totals: { remaining: 0, lowest: 0, sales },
    orders: sales.map((orderId) => ({ orderId, answer: "sold", millis: 40 })),
    handlings,
    ttlMillis: 150,
    stuck: 0,
    millis: orders * 48,
  };
}
