import { randomUUID } from "node:crypto";
import pg from "pg";
import { z } from "zod";
import { stockLock } from "../../core/inventory/inventory.ts";
import { createRuntime, workflow } from "../../core/steps/index.ts";
import { postgresDatabase } from "../../core/stores/postgres/database.ts";
import { sqlInventory } from "../../core/stores/sql/inventory/index.ts";
import { sqlJournal } from "../../core/stores/sql/journal/index.ts";
import { sqlLocks } from "../../core/stores/sql/locks.ts";
import { runWorker } from "../../functions/worker/index.ts";
import { startServer } from "../../infra/servers/start.ts";
import type { Comparison, Contender } from "./measure.ts";
import { loadPeer } from "./peers.ts";
import { compareWithDbos, prepare } from "./steps.ts";
import type { Suite } from "./suite.ts";

const CLIENTS = 16;
const BATCH = 200;

/** The concurrency of workers. */
const JOBS = 8;

interface Graphile {
  startGraphile(
    url: string,
    concurrency: number,
  ): Promise<{ execute(): Promise<void>; stop(): Promise<void> }>;
}

/** Locks and stock on PostgreSQL beside raw statements and advisory locks; steps beside DBOS and graphile-worker on the same server. */
export const postgresSuite: Suite = async (onProgress, { alone }) => {
  const server = await startServer("postgres", { onProgress });
  const { hostname: host, port, username: user } = new URL(server.url);
  const login = { host, port: Number(port), user };
  const admin = new pg.Client({ ...login, database: "postgres" });
  await admin.connect();
  for (const database of ["ours", "dbos", "graphile"]) {
    await admin.query(`CREATE DATABASE ${database}`);
  }
  const raw = await Promise.all(
    Array.from({ length: CLIENTS }, async () => {
      const client = new pg.Client({ ...login, database: "ours" });
      await client.connect();
      return client;
    }),
  );
  const [one] = raw as [pg.Client, ...pg.Client[]];
  const open = () => postgresDatabase({ ...login, database: "ours", connections: CLIENTS });
  const ours = open();
  await prepare(ours);
  const locks = sqlLocks(ours);
  const stock = sqlInventory(ours);
  const sku = "teapot";
  await one.query("CREATE TABLE floor (id INT PRIMARY KEY, value INT)");
  await one.query("CREATE TABLE hot (sku TEXT PRIMARY KEY, quantity BIGINT NOT NULL)");
  await one.query(`INSERT INTO hot VALUES ('${sku}', 1000000000)`);
  await stock.set({ sku, quantity: 1_000_000, operationId: randomUUID() });
  const lock = await locks.lock(stockLock(sku), { ttl: 60_000, wait: 0 });

  const sell = async (client: number) =>
    raw[client]?.query(
      `UPDATE hot SET quantity = quantity - 1 WHERE sku = '${sku}' AND quantity >= 1`,
    );
  const sellOurs = () =>
    stock.decrement({ sku, quantity: 1, operationId: randomUUID(), fence: lock.fence });
  const sellMany = () =>
    stock.decrementMany({
      sku,
      fence: lock.fence,
      orders: Array.from({ length: BATCH }, () => ({ operationId: randomUUID(), quantity: 1 })),
    });
  const contenders: Contender[] = [
    {
      name: "floor: INSERT + DELETE, one connection",
      async run() {
        await one.query("INSERT INTO floor VALUES (1, 1)");
        await one.query("DELETE FROM floor WHERE id = 1");
      },
    },
    {
      name: "acquire + release",
      async run() {
        await (await locks.lock("bench", { ttl: 60_000, wait: 0 })).unlock();
      },
    },
    {
      name: "pg_advisory_lock + pg_advisory_unlock",
      async run() {
        await one.query("SELECT pg_advisory_lock(1)");
        await one.query("SELECT pg_advisory_unlock(1)");
      },
    },
    { name: "plain UPDATE, 1 client", run: sell },
    { name: `plain UPDATE, ${CLIENTS} clients`, clients: CLIENTS, run: sell },
    { name: "fenced decrement, 1 client", run: sellOurs },
    { name: `fenced decrement, ${CLIENTS} clients`, clients: CLIENTS, run: sellOurs },
    { name: `decrementMany of ${BATCH}, 1 client`, batch: BATCH, run: sellMany },
  ];
  const rate = (of: string, over: string, aim: number): Comparison => {
    return { name: `rate of ${of} over ${over}`, of, over, by: "rate", aim };
  };
  const comparisons: Comparison[] = [
    {
      name: "time of acquire + release over its floor",
      of: "acquire + release",
      over: "floor: INSERT + DELETE, one connection",
      by: "time",
      aim: 1.4,
    },
    rate("fenced decrement, 1 client", "plain UPDATE, 1 client", 0.55),
    rate(`fenced decrement, ${CLIENTS} clients`, `plain UPDATE, ${CLIENTS} clients`, 1),
    rate(`decrementMany of ${BATCH}, 1 client`, "plain UPDATE, 1 client", 5),
  ];
  const close = async () => {
    await locks.close();
    await ours.close();
    await Promise.all(raw.map((connection) => connection.end()));
    await admin.end();
    await server.stop();
  };
  if (alone) return { server: server.version, contenders, comparisons, close };

  const urlOf = (database: string) => server.url.replace(/[^/]*$/, database);
  const steps = await compareWithDbos(ours, urlOf("dbos"), { onProgress, aims: [1.5, 1.2] });
  const { startGraphile } = await loadPeer<Graphile>("graphile-worker");
  const graphile = await startGraphile(urlOf("graphile"), JOBS);
  const worker = startWorker(open);
  const jobs = [1, JOBS].flatMap((clients): Contender[] => [
    { name: `runs of one step, ${clients} at a time`, clients, run: worker.execute },
    { name: `jobs of graphile-worker, ${clients} at a time`, clients, run: graphile.execute },
  ]);
  return {
    server: server.version,
    contenders: [...contenders, ...steps.contenders, ...jobs],
    comparisons: [
      ...comparisons,
      ...steps.comparisons,
      ...[1, JOBS].map((clients) => {
        const all = `${clients} at a time`;
        return rate(`runs of one step, ${all}`, `jobs of graphile-worker, ${all}`, 1);
      }),
    ],
    async close() {
      await worker.stop();
      await graphile.stop();
      await steps.close();
      await close();
    },
  };
};

/** A worker that NOTIFY wakes: the runs are started by another client. Each call of `execute` starts one, and resolves when its step is executed. */
function startWorker(open: () => ReturnType<typeof postgresDatabase>) {
  const executed = new Map<string, () => void>();
  const job = workflow(
    { name: "job", version: 1, input: z.object({}) },
    async ({ step, runId }) => {
      await step("step", async () => executed.get(runId)?.());
    },
  );
  const [here, there] = [open(), open()];
  const starter = createRuntime({ journal: sqlJournal(here), workflows: [job] });
  const runtime = createRuntime({ journal: sqlJournal(there), workflows: [job] });
  const stopping = new AbortController();
  const working = runWorker({ runtime, concurrency: JOBS, signal: stopping.signal });
  return {
    async execute() {
      const id = randomUUID();
      const { promise, resolve } = Promise.withResolvers<void>();
      executed.set(id, resolve);
      await starter.start(job, {}, { id });
      await promise;
      executed.delete(id);
    },
    async stop() {
      stopping.abort();
      await working;
      await here.close();
      await there.close();
    },
  };
}
