import { readFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import { expect, onTestFinished, test } from "vitest";
import { createRuntime } from "../../core/steps/runtime.ts";
import { openSqlite } from "../../core/stores/sqlite/index.ts";
import { METRICS } from "../../functions/telemetry/metrics.ts";
import { PrometheusMetrics } from "../../functions/telemetry/prometheus.ts";
import { placeOrder } from "../programs/order.ts";
import { cli, MAIN } from "../support/cli.ts";
import { runNode } from "../support/script.ts";
import { temporaryFile } from "../support/under-test.ts";
import { until } from "../support/until.ts";

const ORDERS = fileURLToPath(new URL("../programs/order.ts", import.meta.url));
const OTHERS = { fetch: () => new Response(null, { status: 404 }) };

async function temporaryStore() {
  const { file, remove } = await temporaryFile();
  onTestFinished(remove);
  const store = await openSqlite(file);
  onTestFinished(() => store.close());
  return { store, url: `sqlite:${file}` };
}

/** Starts a command that prints a line of JSON with URLs. */
async function started(
  args: readonly string[],
  env: NodeJS.ProcessEnv = { LOCKSTEP_TOKEN: undefined },
): Promise<Record<string, string>> {
  const command = runNode([MAIN, ...args], { env: { ...process.env, ...env } });
  onTestFinished(() => command[Symbol.dispose]());
  return JSON.parse(await command.line());
}

const textOf = async (url: string) => (await fetch(url)).text();

test("/metrics of a worker has the metrics of its runs and the depths of the queues, as documented", async () => {
  const { store, url } = await temporaryStore();
  const runtime = createRuntime({ journal: store.journal, workflows: [placeOrder] });
  await runtime.start(placeOrder, { orderId: "o-1", trouble: "flaky" });
  await runtime.start(placeOrder, { orderId: "o-2", sku: "cup", trouble: "waits" });
  const args = ["--store", url, "--lease", "10m", "--port", "0"];
  const { metrics = "" } = await started(["worker", ORDERS, ...args]);
  expect(metrics).toMatch(/^http:\/\/127\.0\.0\.1:\d+\/metrics$/);
  const has = (...lines: readonly string[]) =>
    until(async () => {
      const shown = (await textOf(metrics)).split("\n");
      return lines.every((line) => shown.includes(line));
    });
  const ofRuns = 'lockstep_workflow="place-order"';
  await has(
    `lockstep_run_ended_total{${ofRuns},lockstep_outcome="completed"} 1`,
    `lockstep_step_duration_seconds_count{${ofRuns},lockstep_kind="step",lockstep_outcome="failed"} 2`,
    `lockstep_step_duration_seconds_count{${ofRuns},lockstep_kind="step",lockstep_outcome="ok"} 2`,
    'lockstep_lock_lost_total{lockstep_reason="taken"} 0',
    'lockstep_fenced_out_total{lockstep_guard="fence"} 0',
    "lockstep_journal_up 1",
    'lockstep_runs{queue="default",status="parked"} 1',
    'lockstep_due_runs{queue="default"} 0',
    'lockstep_oldest_due_run_age_seconds{queue="default"} 0',
  );

  const answer = await fetch(metrics);
  expect(answer.headers.get("content-type")).toMatch(/^text\/plain; version=0\.0\.4/);
  const text = await answer.text();
  expect(text).toContain("process_resident_memory_bytes");
  const names = [...text.matchAll(/^# TYPE (lockstep_\S+)/gm)].map(([, name]) => name);
  expect(names).toHaveLength(Object.keys(METRICS).length + 4);
  const docs = await readFile(new URL("../../docs/telemetry.md", import.meta.url), "utf8");
  const documented = [...docs.matchAll(/^\|.*?\| `(lockstep_\w+)` \|/gm)].map(([, name]) => name);
  expect(documented).toEqual(names);

  const { origin } = new URL(metrics);
  expect((await fetch(`${origin}/`)).status).toBe(404);
  expect((await fetch(metrics, { method: "POST" })).status).toBe(404);
});

test("/metrics of lockstep dev needs no token", async () => {
  const { url } = await temporaryStore();
  const dev = await started(["dev", ORDERS, "--store", url, "--port", "0"]);
  const text = await textOf(`${dev.url}/metrics`);
  expect(text).toContain("\nlockstep_journal_up 1\n");
  expect(text).toContain('\nlockstep_lock_lost_total{lockstep_reason="expired"} 0\n');
});

test("a worker with a token has the console, which needs the token; /metrics needs none", async () => {
  const { store, url } = await temporaryStore();
  const runtime = createRuntime({ journal: store.journal, workflows: [placeOrder] });
  await runtime.start(placeOrder, { orderId: "o-1", trouble: "waits" });
  const token = "a token of 16 characters".replaceAll(" ", "-");
  const args = ["worker", ORDERS, "--store", url, "--port", "0"];
  const worker = await started(args, { LOCKSTEP_TOKEN: token });
  expect(await textOf(`${worker.console}`)).toContain("<title>");
  const read = (path: string, more: Record<string, string> = {}) =>
    fetch(`${worker.console}console/api/${path}`, {
      headers: { "lockstep-console": "1", ...more },
    });
  expect((await read("runs")).status).toBe(401);
  const own = { authorization: `Bearer ${token}` };
  expect(await (await read("runs", own)).json()).toMatchObject({ runs: [{ runId: "o-1" }] });
  expect(await (await read("info", own)).json()).toMatchObject({ store: url, isDev: false });
  expect(await textOf(`${worker.metrics}`)).toContain("\nlockstep_journal_up 1\n");
});

test("a worker refuses a port that is none", async () => {
  const refused = await cli("worker", ORDERS, "--port", "70000");
  expect(refused).toMatchObject({ status: 64, stderr: expect.stringContaining("--port") });
});

test("without the journal, its metrics are missing, and lockstep_journal_up is 0", async () => {
  const { store } = await temporaryStore();
  const runtime = createRuntime({ journal: store.journal, workflows: [placeOrder] });
  await runtime.start(placeOrder, { orderId: "o-1" });
  const app = new PrometheusMetrics().serve(OTHERS, store.journal);
  const scrape = async () => (await app.fetch(new Request("http://localhost/metrics"), {})).text();
  const before = await scrape();
  expect(before).toContain('\nlockstep_due_runs{queue="default"} 1\n');
  expect(before).toContain('\nlockstep_runs{queue="default",status="parked"} 1\n');
  expect(before).toMatch(/\nlockstep_oldest_due_run_age_seconds\{queue="default"\} \d/);
  await store.close();
  const after = await scrape();
  expect(after).toContain("\nlockstep_journal_up 0\n");
  expect(after).not.toMatch(/^lockstep_(due_runs|runs|oldest\w+)\{/m);
});
