import { expect, onTestFinished, test } from "vitest";
import { createRuntime } from "../../core/steps/runtime.ts";
import { swaggerPage } from "../../functions/http/swagger-page.ts";
import { open } from "../../infra/open.ts";
import { INSTALLING_BROWSER, startBrowser } from "../support/browser.ts";
import { serving, TOKEN } from "../support/http.ts";
import { temporaryFile } from "../support/under-test.ts";

test("the page shows the document in a browser, sends a request, and contacts no other host", {
  timeout: INSTALLING_BROWSER,
}, async () => {
  const { file, remove } = await temporaryFile();
  const { locks, inventory, journal, close } = await open(`sqlite:${file}`);
  await inventory.set({ sku: "teapot", quantity: 3, operationId: "set" });
  const runtime = createRuntime({ journal, locks });
  const { url } = await serving({ runtime, inventory, locks, page: await swaggerPage() });
  const browser = await startBrowser();
  onTestFinished(async () => {
    await browser.close();
    await close();
    await remove();
  });
  const page = await browser.newPage();
  const said: string[] = [];
  const hosts = new Set<string>();
  page.on("console", (message) => said.push(`${message.type()}: ${message.text()}`));
  page.on("pageerror", (error) => said.push(String(error)));
  page.on("request", (request) => {
    const { protocol, origin } = new URL(request.url());
    if (protocol !== "data:") hosts.add(origin);
  });
  await page.goto(`${url}/docs`);
  await page.getByRole("heading", { name: /Lockstep/ }).waitFor();
  const document = await (await fetch(`${url}/openapi.json`)).json();
  const { paths } = document as { readonly paths: Readonly<Record<string, object>> };
  const operations = Object.values(paths).flatMap((path) => Object.keys(path));
  expect(await page.locator(".opblock").count()).toBe(operations.length);
  await page.getByRole("button", { name: "Authorize" }).click();
  await page.getByRole("textbox").fill(TOKEN);
  await page.getByRole("button", { name: "Apply credentials" }).click();
  await page.getByRole("button", { name: "Close" }).click();
  const read = page.locator("#operations-stock-readStock");
  await read.getByRole("button").first().click();
  await read.getByRole("button", { name: "Try it out" }).click();
  await read.getByRole("textbox").first().fill("teapot");
  await read.getByRole("button", { name: "Execute" }).click();
  await read.locator(".live-responses-table .response-col_status", { hasText: "200" }).waitFor();
  expect(await read.locator(".live-responses-table").innerText()).toContain('"onHand": 3');
  expect(said).toEqual([]);
  expect([...hosts]).toEqual([url]);
});
