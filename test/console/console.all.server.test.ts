import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, expect, inject, type TestContext, test } from "vitest";
import * as z from "zod";
import { encode } from "../../core/steps/codec.ts";
import { workflow } from "../../core/steps/index.ts";
import { createRuntime } from "../../core/steps/runtime.ts";
import { incidentTelemetry } from "../../functions/telemetry/incidents.ts";
import { type AnyStore, open } from "../../infra/open.ts";
import { INSTALLING_BROWSER, seriousFaults, startBrowser } from "../support/browser.ts";
import { act, servingConsole } from "../support/console.ts";
import { etcdElections, zookeeperElections } from "../support/elections-under-test.ts";
import { cells, EVERY_VERSION } from "../support/matrix.ts";
import { RedisCluster } from "../support/redis-group.ts";
import { expectRejection } from "../support/rejection.ts";
import { FOREVER, running } from "../support/runs.ts";
import { runCli, runScript } from "../support/script.ts";
import {
  dynamodbUnderTest,
  etcdUnderTest,
  redisUnderTest,
  type StoreUnderTest,
  sqliteUnderTest,
  sqlServerUnderTest,
  temporaryFile,
} from "../support/under-test.ts";

/** Longer than a ttl of 10 s, on a machine that has much else to do. */
const PATIENCE = 150_000;

const HOSTILE = '"><img src=x onerror=alert(1)><script>alert(2)</script>';

let browser: Browser;

beforeAll(async () => {
  browser = await startBrowser();
}, INSTALLING_BROWSER);

afterAll(() => browser?.close());

async function newStore({ onTestFinished }: TestContext): Promise<string> {
  const { file, remove } = await temporaryFile();
  onTestFinished(remove);
  return `sqlite:${file}`;
}

/** Opens a page that runs `script` first, and collects what must not happen on it: messages, errors, dialogs and other hosts. */
async function openPage({ onTestFinished }: TestContext, url: string, script = "") {
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
}

const Order = z.object({ sku: z.string() });

const order = workflow({ name: "order", version: 1, input: Order }, async (ctx, { sku }) => {
  await ctx.step("charge", async () => "paid");
  await ctx.sleep("until tomorrow", "1d");
  return sku;
});

type Stores = Readonly<Record<string, () => Promise<StoreUnderTest>>>;

const WITH_JOURNAL: Stores = {
  sqlite: sqliteUnderTest,
  mysql: () => sqlServerUnderTest(first(inject("sqlServers"))),
  postgres: () => sqlServerUnderTest(first(inject("postgresServers"))),
};

const STORES: Stores = {
  ...WITH_JOURNAL,
  redis: redisUnderTest,
  etcd: () => etcdUnderTest(first(inject("etcdServers"))),
  dynamodb: dynamodbUnderTest,
  ...(EVERY_VERSION && { "redis-cluster": clusterUnderTest }),
};

async function clusterUnderTest(): Promise<StoreUnderTest> {
  const cluster = await RedisCluster.start();
  const underTest = await cluster.underTest("redis-cluster");
  const close = () => underTest.close().finally(() => cluster[Symbol.asyncDispose]());
  return { ...underTest, close };
}

/** Returns the URL of a store that is closed when the test ends. */
async function urlOf({ onTestFinished }: TestContext, stores: Stores, name: string) {
  const underTest = await stores[name]?.();
  onTestFinished(() => underTest?.close());
  return underTest?.url ?? "";
}

function first<T>([server]: readonly T[]): T {
  if (server === undefined) throw new Error("the test run has started no such server");
  return server;
}

// Beside each other: they wait for a ttl to pass.
test.concurrent.for(cells(Object.keys(STORES)))(
  "on %s, a lock of another process appears, and goes when the process is killed",
  async (name, context) => {
    const store = await urlOf(context, STORES, name);
    const { url } = await servingConsole(context, store);
    const { page, problems } = await openPage(context, url);
    await page.getByText("No lock is held.").waitFor();
    using holder = runScript("hold", store, HOSTILE, "10000");
    await holder.line();
    const heldAt = performance.now();
    const row = page.getByRole("row").filter({ hasText: HOSTILE });
    await row.waitFor();
    const shownAfter = performance.now() - heldAt;
    expect(await row.innerText()).toContain(`:${holder.child.pid}`);
    await row.getByRole("link").click();
    await page.getByRole("heading", { name: HOSTILE }).waitFor();
    const waiting = page.locator("dl > div").filter({ hasText: "Waiting" }).getByRole("definition");
    const hasQueue = ["redis", "redis-cluster", "etcd"].includes(name);
    expect(await waiting.innerText()).toBe(hasQueue ? "0" : "—");
    holder.child.kill("SIGKILL");
    const killedAt = performance.now();
    await page.getByText("Nobody holds this lock.").waitFor();
    const goneAfter = performance.now() - killedAt;
    // No time decides the test: a machine may have much else to do.
    process.stderr.write(
      `on ${name}, the page showed the lock after ${Math.round(shownAfter)} ms, and its end after ${Math.round(goneAfter)} ms of a ttl of 10 s\n`,
    );
    await page.getByRole("link", { name: "Locks" }).click();
    await page.getByText("No lock is held.").waitFor();
    expect(problems).toEqual([]);
  },
);

test.for(cells(Object.keys(STORES)))(
  "on %s, stock is shown, a lock is released in the page, and the late write of its holder is refused, visibly",
  async (name, context) => {
    const store = await urlOf(context, STORES, name);
    const { url } = await servingConsole(context, store);
    const incidents = incidentTelemetry(() => holder.locks);
    const observers = { onEvent: incidents.lock, onStockEvent: incidents.stock };
    await using holder: AnyStore = await open(store, observers);
    const { inventory, locks } = holder;
    await inventory.set({ sku: "cup", quantity: 3, operationId: "set" });
    const lock = await locks.lock("sku/cup", { ttl: "10m", wait: "30s" });
    const { page, problems } = await openPage(context, `${url}/#/stock`);
    await page.getByRole("link", { name: "cup", exact: true }).click();
    await page.getByRole("link", { name: "sku/cup" }).click();
    await page.getByRole("button", { name: "Release…" }).click();
    const dialog = page.getByRole("dialog");
    await dialog.getByRole("textbox", { name: /^Type/ }).fill("sku/cup");
    await dialog.getByRole("button", { name: "Release" }).click();
    const done = dialog.getByRole("status");
    await done.waitFor();
    expect(await done.innerText()).toMatch(/^released; .* its late writes are refused at once$/);
    await dialog.getByRole("button", { name: "Close" }).click();
    await page.getByText("Nobody holds this lock.").waitFor();

    const late = { sku: "cup", quantity: 1, operationId: "too-late", fence: lock.fence };
    await expectRejection(inventory.decrement(late), { code: "FENCED_OUT" });
    await page.getByRole("link", { name: "Incidents" }).click();
    const refused = page.getByRole("row").filter({ hasText: "write refused" });
    await refused.waitFor();
    expect(await refused.innerText()).toContain("too-late");
    expect(await refused.innerText()).toMatch(/fence \d+\.\d+/);
    expect(await refused.innerText()).toContain(`:${process.pid}`);
    expect(await seriousFaults(page)).toEqual([]);
    expect(problems).toEqual([]);
    expect(await inventory.get("cup")).toMatchObject({ onHand: 3 });
    const release = { lock: "sku/cup", fence: String(lock.fence), confirm: "sku/cup" };
    expect(await act(url, "release", release)).toBe("FENCE_INVALID");
  },
);

test.for(cells(Object.keys(WITH_JOURNAL)))(
  "on %s, stock, ledgers and runs are shown, hostile names are text, and axe finds no serious fault",
  async (name, context) => {
    const { store, url } = await servingConsole(context, await urlOf(context, WITH_JOURNAL, name));
    const runtime = createRuntime({ journal: store.journal, locks: store.locks });
    const { inventory } = store;
    await inventory.set({ sku: HOSTILE, quantity: 3, operationId: "set" });
    await inventory.decrement({ sku: HOSTILE, quantity: 2, operationId: HOSTILE });
    const reservation = `${HOSTILE}/basket`;
    await inventory.reserve({
      sku: HOSTILE,
      quantity: 1,
      operationId: reservation,
      expiresIn: "1d",
    });
    await runtime.execute(order, { sku: HOSTILE }, { id: HOSTILE });
    await using lock = await store.locks.lock(HOSTILE, { ttl: "30s", wait: 0 });
    const { page, problems } = await openPage(context, url);
    const sees = async (scheme: "light" | "dark") => {
      await page.emulateMedia({ colorScheme: scheme });
      expect(await seriousFaults(page)).toEqual([]);
    };
    await page.getByRole("link", { name: HOSTILE }).waitFor();
    await sees("light");
    await page.getByRole("link", { name: "Stock" }).click();
    await page.getByRole("link", { name: HOSTILE }).click();
    await page.getByRole("cell", { name: "decrement" }).waitFor();
    expect(await page.getByText("3, which is on hand + reserved + sold").count()).toBe(1);
    const reservations = page.getByRole("region", { name: "Open reservations" });
    await reservations.getByRole("row").filter({ hasText: reservation }).waitFor();
    expect(await reservations.innerText()).toMatch(/23 h/);
    await sees("dark");
    await inventory.cancel({ sku: HOSTILE, reservation, operationId: "cancel" });
    await reservations.waitFor({ state: "detached" });
    await page.getByRole("link", { name: "Runs" }).click();
    await page.getByRole("cell", { name: /a pause, due in 23 h/ }).waitFor();
    await page.getByRole("link", { name: HOSTILE }).click();
    await page.getByRole("img", { name: /^charge ok/ }).waitFor();
    await sees("light");
    await page.getByRole("button", { name: "Cancel…" }).click();
    await page.getByRole("textbox", { name: /^Type/ }).fill("another run");
    await sees("dark");
    await page.getByRole("dialog").getByRole("button", { name: "Cancel" }).click();
    await page.getByRole("alert").filter({ hasText: "nothing was done" }).waitFor();
    await page.getByRole("textbox", { name: /^Type/ }).fill(HOSTILE);
    await page.getByRole("dialog").getByRole("button", { name: "Cancel" }).click();
    await page.getByRole("status").filter({ hasText: "requested" }).waitFor();
    expect((await store.journal.find(HOSTILE))?.cancelled).toBe(true);
    // The browser itself reports the refused request.
    expect(problems.filter((problem) => !problem.includes("400 (Bad Request)"))).toEqual([]);
    lock.assertHeld();
  },
);

test("the queue of a lock shows each waiter, and how long it has waited", async (context) => {
  const underTest = await etcdUnderTest(first(inject("etcdServers")));
  context.onTestFinished(() => underTest.close());
  const { store, url } = await servingConsole(context, underTest.url ?? "");
  const lock = await store.locks.lock("report", { ttl: "60s", wait: 0 });
  const others = underTest.open({ label: "web:71" });
  const waiting = others.lock("report", { ttl: "60s", wait: "5m" });
  const { page, problems } = await openPage(context, `${url}/#/locks/report`);
  const queue = page.getByRole("region", { name: "The waiters" });
  const waiter = queue.getByRole("row").filter({ hasText: "web:71" });
  await waiter.waitFor();
  expect(await waiter.innerText()).toMatch(/^1\s+web:71\s.*\d m?s$/s);
  expect(await seriousFaults(page)).toEqual([]);
  await lock.unlock();
  await queue.waitFor({ state: "detached" });
  await (await waiting).unlock();
  await others.close();
  expect(problems).toEqual([]);
});

const ELECTIONS = {
  async etcd() {
    const server = first(inject("etcdServers"));
    return { server, elections: await etcdElections(server) };
  },
  async zookeeper() {
    const server = first(inject("zookeeperServers"));
    return { server, elections: await zookeeperElections(server) };
  },
};

test.for(["etcd", "zookeeper"] as const)(
  "on %s, an election is shown as a lock, with its leader and its candidates",
  async (name, context) => {
    const isZooKeeper = name === "zookeeper";
    const { server, elections } = await ELECTIONS[name]();
    context.onTestFinished(() => elections.close());
    const root = elections.freshName();
    const { url } = await servingConsole(context, `${server.url}/${root.replace("/", "")}`);
    const [leader, candidate] = [
      await elections.open(`${root}/leader`),
      await elections.open(`${root}/leader`),
    ];
    await leader.election.campaign("host-7");
    const campaign = candidate.election.campaign("host-8");
    const { page, problems } = await openPage(context, url);
    await page.getByRole("row").filter({ hasText: "host-7" }).getByRole("link").click();
    await page.getByRole("definition").filter({ hasText: "host-7" }).waitFor();
    const row = page.getByRole("region", { name: "The waiters" }).getByRole("row").nth(1);
    await row.waitFor();
    const cells = await row.getByRole("cell").allInnerTexts();
    expect(cells).toEqual([
      "1",
      "host-8",
      "",
      expect.stringMatching(isZooKeeper ? /^\d.*s$/ : /^$/),
    ]);
    expect(await page.getByText("Held for").count()).toBe(isZooKeeper ? 1 : 0);
    // ZooKeeper does not tell when the session of another client ends.
    const unknown = page.getByRole("definition").filter({ hasText: "not known" });
    expect(await unknown.count()).toBe(isZooKeeper ? 1 : 0);
    await leader.election.resign();
    await campaign;
    await page.getByRole("definition").filter({ hasText: "host-8" }).waitFor();
    expect(await page.getByRole("region", { name: "The waiters" }).count()).toBe(0);
    await candidate.session.close();
    expect(problems).toEqual([]);
  },
);

test("the leader of an election over locks is shown with its value", async (context) => {
  const { store, url } = await servingConsole(context, await newStore(context));
  const election = await store.elections.open("scheduler", { ttl: "30s" });
  await election.campaign("host-7");
  const { page, problems } = await openPage(context, url);
  const row = page.getByRole("row").filter({ hasText: "host-7, leader" });
  await row.getByRole("link", { name: "scheduler" }).click();
  await page
    .getByRole("definition")
    .filter({ hasText: /^host-7$/ })
    .waitFor();
  await election.proclaim("host-7 again");
  await page.getByRole("definition").filter({ hasText: "host-7 again" }).waitFor();
  await election.resign();
  await page.getByText("Nobody holds this lock.").waitFor();
  expect(problems).toEqual([]);
});

test("a running run shows its steps in progress, and the holder of the lock that one waits for", async (context) => {
  const { store, url } = await servingConsole(context, await newStore(context));
  const run = await running(store.journal, { input: encode("input") });
  await using lock = await store.locks.lock(HOSTILE, { ttl: "60s", wait: 0 });
  await store.journal.renew(run, 600_000, undefined, [
    { key: "charge", since: new Date() },
    { key: "ship", since: new Date(), waitsFor: HOSTILE },
  ]);
  const { page, problems } = await openPage(context, `${url}/#/runs`);
  await page.getByRole("cell", { name: `lock ${HOSTILE}` }).waitFor();
  await page.getByRole("link", { name: run.runId }).click();
  await page.getByRole("img", { name: /^charge begun/ }).waitFor();
  const waits = page.getByRole("cell", { name: `waits for lock ${HOSTILE}, held by ` });
  expect(await waits.innerText()).toContain(`:${process.pid}/`);
  expect(await seriousFaults(page)).toEqual([]);
  expect(problems).toEqual([]);
  lock.assertHeld();
});

test("the queues are shown with their depths, the age of the oldest due run, and their limits", async (context) => {
  const { store, url } = await servingConsole(context, await newStore(context));
  const { journal } = store;
  const due = await running(journal, { turn: { queue: HOSTILE } });
  await journal.park(due, { ...FOREVER, wakeIn: 0 });
  await running(journal, { turn: { queue: HOSTILE } });
  const other = await running(journal, { turn: { queue: "nightly" } });
  await journal.setLimits(HOSTILE, { concurrency: 17, perKey: 3 });
  const { page, problems } = await openPage(context, `${url}/#/queues`);
  const queue = page.getByRole("row").filter({ hasText: HOSTILE });
  await queue.waitFor();
  const cells = await queue.getByRole("cell").allInnerTexts();
  expect(cells).toEqual([HOSTILE, "1", "1", "0", "1", expect.stringMatching(/^\d.*s$/), "17", "3"]);
  expect(await seriousFaults(page)).toEqual([]);
  await page.getByRole("searchbox", { name: "Queue" }).fill("NIGHT");
  await queue.waitFor({ state: "detached" });
  await page.getByRole("link", { name: "nightly" }).click();
  await page.getByRole("link", { name: other.runId }).waitFor();
  expect(await page.getByRole("link", { name: due.runId }).count()).toBe(0);
  expect(problems).toEqual([]);
});

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

test.for(EVERY_VERSION ? Object.keys(STORES) : ["sqlite"])(
  "on %s, a page stays small with 1,000 locks and, where there is a journal, 10,000 runs",
  async (name, context) => {
    const { store, url } = await servingConsole(context, await urlOf(context, STORES, name));
    for (let i = 0; i < 1_000; i += 50) {
      const names = Array.from({ length: 50 }, (_, n) => `lock-${i + n}`);
      await store.locks.lockAll(names, { ttl: "1h", wait: 0, renew: false });
    }
    const { page, problems } = await openPage(context, url);
    await page.getByText("200 of 1000 held locks").waitFor();
    expect(await page.getByRole("row").count()).toBe(201);
    if (!store.has("journal")) return expect(problems).toEqual([]);
    const runs = Array.from({ length: 10_000 }, (_, i) => ({
      ...{ runId: `run-${i}`, owner: "test", workflow: "order", version: 1, input: '{"json":{}}' },
      inputHash: "0".repeat(64),
    }));
    for (let i = 0; i < runs.length; i += 1_000) {
      await store.journal.start(runs.slice(i, i + 1_000));
    }
    await page.getByRole("link", { name: "Runs" }).click();
    await page.getByRole("button", { name: "Older runs" }).click();
    const first = page.getByRole("row").nth(1);
    await page.getByText(/^Runs before/).waitFor();
    expect(await first.innerText()).toMatch(/run-\d+/);
    expect(await page.getByRole("row").count()).toBe(201);
    expect(problems).toEqual([]);
  },
);

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

test("a name is confirmed as it is shown, also with repeated spaces and control characters", async (context) => {
  const { store, url } = await servingConsole(context, await newStore(context));
  for (const [name, shown] of [
    ["a  b", "a  b"],
    ["a\nb\u009bc", "a\\nb\\u009bc"],
  ] as const) {
    await store.locks.lock(name, { ttl: "10m", wait: 0, renew: false });
    const { page, problems } = await openPage(context, url);
    await page.getByRole("row").last().getByRole("link").click();
    await page.getByRole("button", { name: "Release…" }).click();
    const dialog = page.getByRole("dialog");
    expect(await dialog.locator("b").innerText()).toBe(shown);
    await dialog.getByRole("textbox", { name: /^Type/ }).fill(shown);
    await dialog.getByRole("button", { name: "Release" }).click();
    await dialog.getByText("released; ").waitFor();
    expect((await store.locks.inspect(name)).holder).toBeUndefined();
    expect(problems).toEqual([]);
  }
});

test("a double click on Fork, and a second one after a lost answer, start one run, also on a page without HTTPS", async (context) => {
  const { store, url } = await servingConsole(context, await newStore(context));
  const { journal, locks } = store;
  const runtime = createRuntime({ journal, locks });
  await runtime.execute(order, { sku: "cup" }, { id: "order-1" });
  const insecure = "delete Crypto.prototype.randomUUID;";
  const { page, problems } = await openPage(context, `${url}/#/runs/order-1`, insecure);
  let requests = 0;
  await page.route("**/api/actions/fork", async (route) => {
    requests += 1;
    if (requests > 1) return route.continue();
    await route.fetch();
    // The answer is lost.
    await route.abort();
  });
  await page.getByRole("button", { name: "Fork…" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByLabel("First step to execute").fill("charge");
  await dialog.getByRole("textbox", { name: /^Type/ }).fill("order-1");
  const fork = dialog.getByRole("button", { name: "Fork" });
  await fork.dblclick();
  await dialog.getByRole("alert").waitFor();
  expect(requests).toBe(1);
  await fork.click();
  await dialog.getByText("started as ").waitFor();
  expect(await journal.list({ limit: 9 })).toHaveLength(2);
  expect(problems.filter((problem) => !problem.includes("ERR_FAILED"))).toEqual([]);
});

/** Clicks on an action, fills its fields and types the name of what it changes; returns what was done. */
async function perform(
  page: Page,
  title: string,
  typed: string,
  fields: Readonly<Record<string, string>> = {},
): Promise<string> {
  await page.getByRole("button", { name: `${title}…` }).click();
  const dialog = page.getByRole("dialog");
  for (const [label, value] of Object.entries(fields)) await dialog.getByLabel(label).fill(value);
  await dialog.getByRole("textbox", { name: /^Type/ }).fill(typed);
  await dialog.getByRole("button", { name: title }).click();
  const done = await dialog.getByRole("status").innerText();
  await dialog.getByRole("button", { name: "Close" }).click();
  return done;
}

test("in the page, a run is signalled, retried and forked, and the limit of its queue is raised", async (context) => {
  const { store, url } = await servingConsole(context, await newStore(context));
  const { journal, locks } = store;
  let isBroken = true;
  const signals = { approved: z.object({ by: z.string() }) };
  const definition = { name: "approval", version: 1, input: Order, signals };
  const approval = workflow(definition, async (ctx) => {
    const approved = await ctx.waitFor("approved");
    return ctx.step("charge", { retry: { attempts: 1 } }, async () => {
      if (isBroken) throw new Error("the card is refused");
      return `charged for ${approved.by}`;
    });
  });
  const runtime = createRuntime({ journal, locks });
  const execute = () => runtime.execute(approval, { sku: "cup" }, { id: "order-1" });
  expect((await execute()).status).toBe("suspended");

  const { page, problems } = await openPage(context, `${url}/#/runs/order-1`);
  const fields = { Signal: "approved", "Payload, as JSON": '{"by":"Ada"}' };
  expect(await perform(page, "Send signal", "order-1", fields)).toBe("delivered");
  const limits = { "Runs at a time": "7" };
  await perform(page, "Set limits of its queue", "default", limits);
  expect((await journal.limits()).get("default")).toMatchObject({ concurrency: 7 });

  expect((await execute()).status).toBe("failed");
  await page.getByText("failed", { exact: true }).first().waitFor();
  isBroken = false;
  await perform(page, "Retry", "order-1");
  expect(await execute()).toMatchObject({ output: "charged for Ada" });
  await page.getByRole("button", { name: "Retry…" }).waitFor({ state: "detached" });

  const fork = { "First step to execute": "charge", "Id of the new run": "order-1-again" };
  expect(await perform(page, "Fork", "order-1", fork)).toBe("started as order-1-again");
  await page.getByRole("link", { name: "order-1-again" }).click();
  await page.getByRole("link", { name: "order-1", exact: true }).waitFor();
  expect(await journal.find("order-1-again")).toMatchObject({ origin: { runId: "order-1" } });
  expect(problems).toEqual([]);
});

test("the page of lockstep dev freezes a holder: the next one comes, and the late write is refused; then it kills one", async (context) => {
  const store = await newStore(context);
  await using shop: AnyStore = await open(store);
  const { inventory, locks } = shop;
  await inventory.set({ sku: "cup", quantity: 3, operationId: "set" });
  using dev = runCli("dev", "--store", store, "--port", "0");
  const { console: link } = JSON.parse(await dev.line());
  using holder = runScript("sell-when-lost", store, "cup");
  await holder.line();
  const { page, problems } = await openPage(context, link);
  await page.getByRole("link", { name: "sku/cup" }).click();
  const process = page.getByRole("definition");
  await process.filter({ hasText: new RegExp(`^${holder.child.pid}$`) }).waitFor();
  const done = await perform(page, "Freeze holder 5 s", "sku/cup");
  expect(done).toBe(`process ${holder.child.pid} is frozen for 5 s`);

  const next = await locks.lock("sku/cup", { ttl: "10m", wait: "2m" });
  await process.filter({ hasText: new RegExp(`^${globalThis.process.pid}$`) }).waitFor();
  const sale = { sku: "cup", quantity: 1, operationId: "in-time", fence: next.fence };
  expect(await inventory.decrement(sale)).toMatchObject({ outcome: "applied" });
  expect(await holder.line()).toBe("FENCED_OUT");
  await page.getByRole("link", { name: "Stock" }).click();
  await page.getByRole("link", { name: "cup", exact: true }).click();
  await page.getByRole("cell", { name: "in-time" }).waitFor();
  expect(await page.getByRole("cell", { name: "late" }).count()).toBe(0);
  await page.getByRole("link", { name: "Incidents" }).click();
  const incidents = page.getByRole("row").filter({ hasText: `:${holder.child.pid}` });
  await incidents.filter({ hasText: "write refused" }).filter({ hasText: "late" }).waitFor();
  await incidents.filter({ hasText: "lock lost" }).filter({ hasText: "sku/cup" }).waitFor();
  await next.unlock();

  using other = runScript("hold", store, "job", "600000");
  await other.line();
  await page.getByRole("link", { name: "Locks" }).click();
  await page.getByRole("link", { name: "job" }).click();
  expect(await perform(page, "Kill holder", "job")).toContain(
    `process ${other.child.pid} is killed`,
  );
  expect(await other.ended).toBe("SIGKILL");
  expect(problems).toEqual([]);
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

test("parts that a store does not have are said to be missing", async (context) => {
  const { url } = await servingConsole(context, "memory:");
  const { page } = await openPage(context, url);
  await page.getByText("Stock: not in this store").waitFor();
  await page.goto(`${url}/#/stock`);
  await page.getByText("the store has no inventory").waitFor();
});
