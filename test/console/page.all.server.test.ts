import { expect, test } from "vitest";
import { createRuntime } from "../../core/steps/runtime.ts";
import { type AnyStore, open } from "../../infra/open.ts";
import { seriousFaults } from "../support/browser.ts";
import { servingConsole } from "../support/console.ts";
import { runCli } from "../support/script.ts";
import { order } from "./order.ts";
import { browserBeforeTests } from "./pages.ts";
import { newStore } from "./stores.ts";

const openPage = browserBeforeTests();

test("a filter is part of the address, and a link to it works", async (context) => {
  const { store, url } = await servingConsole(context, await newStore(context));
  for (const name of ["import/eu", "import/us", "report"]) {
    await store.locks.lock(name, { ttl: "60s", wait: 0 });
  }
  const { page } = await openPage(context, url);
  await page.getByText("3 held locks").waitFor();
  await page.getByRole("searchbox", { name: /^Name/ }).fill("import/");
  await page.getByText("2 held locks").waitFor();
  const { page: other } = await openPage(context, page.url());
  await other.getByText("2 held locks").waitFor();
  expect(await other.getByRole("link", { name: "report" }).count()).toBe(0);
});

test("a console needs its token, says when it refuses one, and a link can carry the token", async (context) => {
  const token = "a token-of+the/console".replace(" ", "-");
  const { url } = await servingConsole(context, await newStore(context), { token });
  const { page } = await openPage(context, url);
  await page.getByRole("alert").filter({ hasText: "The console needs its token." }).waitFor();
  expect(await page.getByRole("status").innerText()).toBe("locked");
  const refused = {
    "another-token-than-that": "The server refused this token.",
    "another…that": "A token has no such character: …",
  };
  for (const [wrong, problem] of Object.entries(refused)) {
    await page.getByLabel("Token").fill(wrong);
    await page.getByRole("button", { name: "Open" }).click();
    await page.getByRole("alert").filter({ hasText: problem }).waitFor();
    expect(await page.getByRole("status").innerText()).toBe("locked");
  }
  await page.reload();
  await page.getByLabel("Token").fill(token);
  await page.getByRole("button", { name: "Open" }).click();
  await page.getByText("No lock is held.").waitFor();
  const { page: linked, problems } = await openPage(
    context,
    `${url}/#token=${encodeURIComponent(token)}`,
  );
  await linked.getByText("No lock is held.").waitFor();
  expect(linked.url()).toBe(`${url}/#/locks`);
  expect(problems).toEqual([]);
  await linked.goto(`${url}/#token=100%`);
  await linked.getByRole("alert").filter({ hasText: "The server refused" }).waitFor();
  expect(linked.url()).toBe(`${url}/#/locks`);
});

test("a name that is no valid escape in the address is taken as it is", async (context) => {
  const { store, url } = await servingConsole(context, await newStore(context));
  await using lock = await store.locks.lock("100%", { ttl: "10m", wait: 0 });
  const { page, problems } = await openPage(context, url);
  await page.getByRole("link", { name: lock.name }).waitFor();
  for (const other of [page, (await openPage(context, `${url}/#/locks/100%`)).page]) {
    await other.evaluate("location.replace('#/locks/100%')");
    await other.getByRole("heading", { name: "100%" }).waitFor();
    await other.getByRole("button", { name: "Release…" }).waitFor();
  }
  expect(problems).toEqual([]);
});

test("a page without an answer says since when, and is live again after the next one", async (context) => {
  const { store, url } = await servingConsole(context, await newStore(context));
  await using _ = await store.locks.lock("job", { ttl: "10m", wait: 0 });
  const { page, problems } = await openPage(context, url);
  const status = page.getByRole("status");
  await status.filter({ hasText: /^live$/ }).waitFor();
  await page.route("**/api/locks*", () => {});
  const filter = page.getByRole("searchbox", { name: /^Name/ });
  await filter.fill("jo");
  await status.filter({ hasText: /^No news since \d/ }).waitFor();
  expect(await filter.inputValue()).toBe("jo");
  expect(await seriousFaults(page)).toEqual([]);
  expect(await page.getByRole("link", { name: "job" }).count()).toBe(1);
  await page.unroute("**/api/locks*");
  await status.filter({ hasText: /^live$/ }).waitFor();
  expect(problems).toEqual([]);
});

test("spans are counted by the server's clock", async (context) => {
  const { store, url } = await servingConsole(context, await newStore(context));
  await using _ = await store.locks.lock("job", { ttl: "10m", wait: 0 });
  const runtime = createRuntime({ journal: store.journal, locks: store.locks });
  await runtime.execute(order, { sku: "cup" }, { id: "order-1" });
  // An hour ahead.
  const ahead = "const now = Date.now; Date.now = () => now() + 3_600_000;";
  const { page, problems } = await openPage(context, url, ahead);
  const lock = page.getByRole("row").filter({ hasText: "job" });
  await lock.waitFor();
  expect((await lock.getByRole("cell").allInnerTexts())[3]).not.toMatch(/ h /);
  await page.getByRole("link", { name: "Runs" }).click();
  await page.getByRole("cell", { name: /a pause, due in 23 h/ }).waitFor();
  expect(problems).toEqual([]);
});

test("after a restart on another store, the page shows that store, and no dialog of the one before", async (context) => {
  const old = await servingConsole(context, await newStore(context), { readOnly: true });
  const { store, url } = old;
  await store.locks.lock("staging", { ttl: "10m", wait: 0, renew: false });
  const { page } = await openPage(context, url);
  await page.getByRole("link", { name: "staging" }).click();
  await page.getByRole("heading", { name: "staging" }).waitFor();
  const { page: runs } = await openPage(context, `${url}/#/runs`);
  await runs.getByText("There are no such runs.").waitFor();
  await old.close();
  const restarted = { port: Number(new URL(url).port), runtime: undefined };
  const { store: other } = await servingConsole(context, await newStore(context), restarted);
  await using lock = await other.locks.lock("staging", { ttl: "10m", wait: 0 });
  await page.getByText(other.url).waitFor();
  await runs.getByText(other.url).waitFor();
  await runs.getByText("the store has no journal").waitFor();
  expect(await page.getByText(store.url).count()).toBe(0);
  expect(await page.getByText("read-only").count()).toBe(0);

  await page.getByRole("button", { name: "Release…" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByRole("textbox", { name: /^Type/ }).fill("staging");
  await page.route("**/api/actions/*", (route) =>
    route.continue({ headers: { ...route.request().headers(), "lockstep-console": "of another" } }),
  );
  await dialog.getByRole("button", { name: "Release" }).click();
  await dialog.getByRole("alert").filter({ hasText: "nothing was done" }).waitFor();
  lock.assertHeld();
});

test("lockstep console serves the page, and ends on a signal", async (context) => {
  const store = await newStore(context);
  await using opened: AnyStore = await open(store);
  await using lock = await opened.locks.lock("report", { ttl: "10m", wait: 0 });
  using served = runCli("console", "--store", store, "--port", "0", "--read-only");
  const { url } = JSON.parse(await served.line());
  const { page, problems } = await openPage(context, url);
  await page.getByText("read-only").waitFor();
  await page.getByRole("link", { name: "report" }).click();
  await page
    .getByRole("definition")
    .filter({ hasText: `:${process.pid}/` })
    .waitFor();
  expect(await page.getByRole("button").count()).toBe(0);
  expect(problems).toEqual([]);
  served.child.kill("SIGTERM");
  expect(await served.ended).toBe(0);
  lock.assertHeld();
});

test("the page of lockstep console shows the lost lock of another process", async (context) => {
  const store = await newStore(context);
  await using opened: AnyStore = await open(store);
  using holder = runCli("lock", "job", "--ttl", "1s", "--store", store);
  const { fence } = JSON.parse(await holder.line());
  using served = runCli("console", "--store", store, "--port", "0", "--read-only");
  const { url } = JSON.parse(await served.line());
  const { page, problems } = await openPage(context, `${url}#/incidents`);
  await page.getByText("no process has reported").waitFor();
  await opened.locks.release("job", { fence });
  expect(await holder.ended).toBe(76);
  const lost = page.getByRole("row").filter({ hasText: `:${holder.child.pid}` });
  await lost.filter({ hasText: "lock lost" }).waitFor();
  expect(await lost.innerText()).toMatch(/job.*has expired at the store, or has another holder/s);
  expect(await seriousFaults(page)).toEqual([]);
  expect(problems).toEqual([]);
});
