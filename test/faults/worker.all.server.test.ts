import { DatabaseSync } from "node:sqlite";
import { describe, expect, inject, test } from "vitest";
import { z } from "zod";
import { asNumber, sql } from "../../core/database/sql.ts";
import { createRuntime } from "../../core/steps/runtime.ts";
import { workflow } from "../../core/steps/workflow.ts";
import { migrate } from "../../core/stores/sql/migrate.ts";
import type { WorkerEvent } from "../../functions/worker/options.ts";
import { runWorker } from "../../functions/worker/worker.ts";
import { open } from "../../infra/open.ts";
import { startServer } from "../../infra/servers/start.ts";
import { soak } from "../soak/soak.ts";
import { cells } from "../support/matrix.ts";
import { restart } from "../support/restart.ts";
import { temporaryDatabase, temporaryFile } from "../support/under-test.ts";
import { pause, until } from "../support/until.ts";

const Item = z.object({ id: z.string() });

const counted = workflow(
  { name: "counted", version: 1, input: Item, id: ({ id }) => id },
  async (ctx, { id }) => {
    for (const part of ["a", "b", "c"]) {
      await ctx.step.tx(part, { lock: { names: `item/${id}`, ttl: "2s" } }, async ({ tx }) => {
        await tx.batch([sql`INSERT INTO effect (name) VALUES (${`${id} ${part}`})`]);
      });
      await ctx.step(`pause ${part}`, () => pause(20));
    }
  },
);

/** Starts a worker in this process on the store of the URL. */
async function workerOn(url: string) {
  const opened = await open(url);
  const { database, journal, locks } = opened;
  await migrate(database);
  await database.batch([sql`CREATE TABLE effect (name VARCHAR(255) NOT NULL PRIMARY KEY)`]);
  const runtime = createRuntime({ journal, locks, workflows: [counted], lease: "2s" });
  const end = new AbortController();
  const events: WorkerEvent[] = [];
  const onEvent = (event: WorkerEvent) => void events.push(event);
  const ended = runWorker({ runtime, concurrency: 4, signal: end.signal, onEvent });
  const effects = async () =>
    asNumber((await database.read(sql`SELECT COUNT(*) AS effects FROM effect`))[0]?.effects);
  return {
    runtime,
    journal,
    effects,
    eventTypes: () => events.map(({ type }) => type).filter((type) => type !== "executed"),
    refused: () => events.filter(({ type }) => type === "refused"),
    async close() {
      end.abort();
      const report = await ended;
      await opened.close();
      return report;
    },
  };
}

/** Locks the file for writing, unless another connection writes. */
function hasLocked(blocker: DatabaseSync): boolean {
  try {
    blocker.exec("BEGIN IMMEDIATE");
    return true;
  } catch {
    return false;
  }
}

describe.concurrent("a worker", () => {
  test.each(cells(["mariadb", "postgres"] as const))(
    "a worker goes on after two restarts of its database on %s, reports each once, and repeats no step",
    async (kind) => {
      await using server = await startServer(kind);
      const worker = await workerOn(server.url);
      let begun = 0;
      for (let count = 0; count < 2; count += 1) {
        for (let i = 0; i < 20; i += 1) {
          await worker.runtime.start(counted, { id: `run-${begun}` });
          begun += 1;
        }
        await until(async () => (await worker.effects()) > count * 60 + 5, 60_000);
        await restart(server, () =>
          until(() => worker.eventTypes().length >= 2 * count + 1, 60_000),
        );
        await until(() => worker.eventTypes().length >= 2 * count + 2, 60_000);
      }
      const completed = async () =>
        (await worker.journal.list({ status: "completed", limit: 100 })).length;
      await until(async () => (await completed()) === begun, 60_000);
      expect(await worker.effects()).toBe(3 * begun);
      expect(worker.refused()).toEqual([]);
      // A server that starts may let a client in, and refuse its next connection.
      const outages = worker.eventTypes().length / 2;
      const alternating = Array(outages).fill(["outage", "recovered"]).flat();
      expect(worker.eventTypes()).toEqual(alternating);
      expect(await worker.close()).toMatchObject({ isClean: true, failed: 0 });
    },
    240_000,
  );

  test("a worker goes on after another process has locked its file for longer than a call may take", async () => {
    const { file, remove } = await temporaryFile();
    const worker = await workerOn(`sqlite:${file}`);
    const blocker = new DatabaseSync(file);
    await worker.runtime.start(counted, { id: "a" });
    await until(async () => (await worker.effects()) > 0);
    // The worker may be writing at the moment.
    await until(() => hasLocked(blocker));
    await until(() => worker.eventTypes().length > 0, 60_000);
    blocker.exec("ROLLBACK");
    blocker.close();
    await until(async () => (await worker.journal.show("a"))?.status === "completed", 60_000);
    expect(await worker.effects()).toBe(3);
    expect(worker.eventTypes()).toEqual(["outage", "recovered"]);
    await worker.close();
    await remove();
  }, 180_000);
});

test.concurrent("no order is lost or fulfilled twice by 4 workers with locks in etcd and a journal in MySQL, two of which are killed every 3 s", async () => {
  const [server] = inject("sqlServers");
  const [etcd] = inject("etcdServers");
  if (!server || !etcd) throw new Error("the tests have no MySQL server or no etcd");
  const { url, drop } = await temporaryDatabase(server);
  const locks = `etcd://${etcd.endpoints.join(",")}/soak-${Date.now()}`;
  const report = await soak({ store: url, locks, seconds: 15 });
  expect(report).toMatchObject({ faults: [] });
  expect(report.completed).toBeGreaterThan(0);
  expect(report.kills).toBeGreaterThan(0);
  await drop();
}, 300_000);
