import { readFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import { beforeAll, expect, onTestFinished, test } from "vitest";
import { createRuntime } from "../../core/steps/runtime.ts";
import { openSqlite } from "../../core/stores/sqlite/index.ts";
import { run } from "../../infra/servers/processes.ts";
import { placeOrder } from "../programs/order.ts";
import { prometheusBinaries, startPrometheus } from "../support/prometheus.ts";
import { runCli } from "../support/script.ts";
import { temporaryFile } from "../support/under-test.ts";
import { pause, until } from "../support/until.ts";

const pathOf = (path: string) => fileURLToPath(new URL(`../../${path}`, import.meta.url));
const ORDERS = pathOf("test/programs/order.ts");
const RULES = pathOf("infra/monitoring/alerts.yml");
const DASHBOARD = pathOf("infra/monitoring/dashboard.json");

// Installs Prometheus where it is missing.
beforeAll(async () => {
  await prometheusBinaries();
}, 600_000);

interface Query {
  readonly expr: string;
  readonly legendFormat: string;
}

/** The queries of the dashboard. */
async function queriesOfPanels(): Promise<readonly Query[]> {
  const { panels } = JSON.parse(await readFile(DASHBOARD, "utf8"));
  return panels.flatMap(({ targets = [] }: { readonly targets?: readonly Query[] }) =>
    targets.map((each) => ({ ...each, expr: each.expr.replaceAll("$__rate_interval", "1m") })),
  );
}

/** Starts a worker that has executed a run. Returns the URL of its metrics, and a function that gives it an order. */
async function startWorker() {
  const { file, remove } = await temporaryFile();
  onTestFinished(remove);
  const store = await openSqlite(file);
  onTestFinished(() => store.close());
  const runtime = createRuntime({ journal: store.journal, workflows: [placeOrder] });
  let orders = 0;
  const order = (trouble: "none" | "waits" = "none") => {
    orders += 1;
    return runtime.start(placeOrder, { orderId: `o-${orders}`, trouble });
  };
  await order();
  await order("waits");
  const worker = runCli("worker", ORDERS, "--store", `sqlite:${file}`, "--port", "0");
  onTestFinished(() => worker[Symbol.dispose]());
  const { metrics }: { readonly metrics: string } = JSON.parse(await worker.line());
  await until(async () => (await store.journal.find("o-1"))?.status === "completed");
  return { metrics, order };
}

test("a Prometheus that scrapes a worker has every metric of it, of the rules and of the dashboard", async () => {
  const { metrics, order } = await startWorker();
  await using prometheus = await startPrometheus({ scrapes: metrics, rules: RULES });
  await until(() => prometheus.has("lockstep_runs"));

  const text = await (await fetch(metrics)).text();
  const exported = new Set(text.match(/^lockstep_\w+/gm));
  expect(exported.size).toBeGreaterThan(13);
  for (const name of exported) {
    expect(await prometheus.has(name), name).toBe(true);
  }

  const queries = await queriesOfPanels();
  const panels = queries.map(({ expr }) => expr);
  const rules = await readFile(RULES, "utf8");
  const labels = new Set(text.match(/lockstep_\w+(?==")/g));
  const used = [...panels, rules]
    .flatMap((expression) => expression.match(/\b(?:lockstep|process|nodejs)_\w+/g) ?? [])
    .filter((name) => !labels.has(name));
  expect(used).not.toEqual([]);
  for (const name of new Set(used)) {
    expect(await prometheus.has(name), name).toBe(true);
  }
  const inPanels = panels.join("\n");
  for (const name of exported) {
    expect(inPanels, name).toContain(name.replace(/_(?:bucket|sum|count)$/, ""));
  }

  const hasData = async ({ expr, legendFormat }: Query) => {
    const samples = await prometheus.query(expr);
    const names = [...legendFormat.matchAll(/\{\{(\w+)\}\}/g)].map(([, name = ""]) => name);
    return (
      samples.some(({ value: [, value] }) => Number.isFinite(Number(value))) &&
      samples.every(({ metric }) => names.every((name) => metric[name] !== undefined))
    );
  };
  const empty: string[] = [];
  for (const query of queries) {
    const found = async () => {
      if (await hasData(query)) return true;
      // A rate needs work between two scrapes.
      await order();
      await pause(1_000);
      return false;
    };
    await until(found, 60_000).catch(() => empty.push(query.expr));
  }
  expect(empty).toEqual([]);

  const names = [...rules.matchAll(/- alert: (\w+)/g)].map(([, name]) => name);
  const isEvaluated = async () =>
    (await prometheus.rules()).every(({ health }) => health !== "unknown");
  await until(isEvaluated);
  expect((await prometheus.rules()).map(({ name, health }) => `${name} ${health}`)).toEqual(
    names.map((name) => `${name} ok`),
  );
  const docs = await readFile(pathOf("docs/telemetry.md"), "utf8");
  expect([...docs.matchAll(/^\| `(Lockstep\w+)` \|/gm)].map(([, name]) => name)).toEqual(names);
});

test("promtool finds no fault in the rules, and each alert fires for its trouble alone", async () => {
  const { promtool } = await prometheusBinaries();
  await run(promtool, ["check", "rules", RULES]);
  await run(promtool, ["test", "rules", pathOf("test/telemetry/alerts.yml")]);
});
