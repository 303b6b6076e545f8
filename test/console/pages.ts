import type { Browser } from "playwright-core";
import { afterAll, beforeAll, type TestContext } from "vitest";
import { INSTALLING_BROWSER, startBrowser } from "../support/browser.ts";

/** Longer than a ttl of 10 s, on a machine that has much else to do. */
const PATIENCE = 150_000;

/** Starts a browser before the tests of a file, and returns a function that opens a page in it. */
export function browserBeforeTests() {
  let browser: Browser;

  beforeAll(async () => {
    browser = await startBrowser();
  }, INSTALLING_BROWSER);

  afterAll(() => browser?.close());

  /** Opens a page that runs `script` first, and collects what must not happen on it: messages, errors, dialogs and other hosts. */
  return async function openPage({ onTestFinished }: TestContext, url: string, script = "") {
    const context = await browser.newContext();
    onTestFinished(() => context.close());
    await context.addInitScript(script);
    const page = await context.newPage();
    page.setDefaultTimeout(PATIENCE);
    const problems: string[] = [];
    page.on("console", (message) => problems.push(`${message.type()}: ${message.text()}`));
    page.on("pageerror", (error) => problems.push(String(error)));
    page.on("dialog", (dialog) => {
      problems.push(`dialog: ${dialog.message()}`);
      void dialog.dismiss();
    });
    page.on("request", (request) => {
      const { protocol, origin } = new URL(request.url());
      if (protocol !== "data:" && origin !== new URL(url).origin) problems.push(`asked ${origin}`);
    });
    await page.goto(url);
    return { page, problems };
  };
}
