import { randomUUID } from "node:crypto";
import pg from "pg";
import { z } from "zod";
import { createRuntime, workflow } from "../../core/steps/index.ts";
import { postgresDatabase } from "../../core/stores/postgres/database.ts";
import { sqlJournal } from "../../core/stores/sql/journal/index.ts";
import { runWorker } from "../../functions/worker/index.ts";
import { startServer } from "../../infra/servers/start.ts";
import type { Contender } from "./measure.ts";
import { loadPeer } from "./peers.ts";
import { CLIENTS, compareSql, rate } from "./sql.ts";
import { compareWithDbos, prepare } from "./steps.ts";
import type { Suite } from "./suite.ts";

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
  const urlOf = (database: string) => server.url.replace(/[^/]*$/, database);
  const open = () => postgresDatabase({ ...login, database: "ours", connections: CLIENTS });
  const ours = open();
  await prepare(ours);
  const contest = await compareSql({
    ours,
    url: urlOf("ours"),
    text: "TEXT",
    ownLock: {
      name: "pg_advisory_lock + pg_advisory_unlock",
      take: "SELECT pg_advisory_lock(1)",
      release: "SELECT pg_advisory_unlock(1)",
    },
    aims: { pair: 1.4, one: 0.55, many: 1 },
  });
  const close = async () => {
    await contest.close();
    await admin.end();
    await server.stop();
  };
  if (alone) return { ...contest, server: server.version, close };

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
    notes: steps.notes,
    contenders: [...contest.contenders, ...steps.contenders, ...jobs],
    comparisons: [
      ...contest.comparisons,
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
