import { expect, inject, test } from "vitest";
import { encode } from "../../core/steps/codec.ts";
import { createRuntime } from "../../core/steps/runtime.ts";
import { seriousFaults } from "../support/browser.ts";
import { servingConsole } from "../support/console.ts";
import { etcdElections, zookeeperElections } from "../support/elections-under-test.ts";
import { cells, EVERY_VERSION } from "../support/matrix.ts";
import { FOREVER, running } from "../support/runs.ts";
import { runScript } from "../support/script.ts";
import { etcdUnderTest } from "../support/under-test.ts";
import { order } from "./order.ts";
import { browserBeforeTests } from "./pages.ts";
import { first, newStore, STORES, urlOf, WITH_JOURNAL } from "./stores.ts";

const HOSTILE = '"><img src=x onerror=alert(1)><script>alert(2)</script>';

const openPage = browserBeforeTests();

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

test("parts that a store does not have are said to be missing", async (context) => {
  const { url } = await servingConsole(context, "memory:");
  const { page } = await openPage(context, url);
  await page.getByText("Stock: not in this store").waitFor();
  await page.goto(`${url}/#/stock`);
  await page.getByText("the store has no inventory").waitFor();
});
