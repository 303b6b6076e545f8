import { readFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { pathToFileURL } from "node:url";
import { expect, onTestFinished, test } from "vitest";
import type { StrategyReport } from "../../functions/oversell/report.ts";
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
    expect(await drawn.locator(".bounced").count()).toBe(refused);
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

  for (const width of [1_280, 360]) {
    await page.setViewportSize({ width, height: 800 });
    for (const colorScheme of ["light", "dark"] as const) {
      await page.emulateMedia({ colorScheme });
      expect(await seriousFaults(page)).toEqual([]);
    }
    expect(await page.evaluate("document.documentElement.scrollWidth")).toBe(width);
  }
  expect(said).toEqual([]);
  expect(requests).toEqual([href]);
});
