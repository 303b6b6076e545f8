import { median } from "simple-statistics";
import { type Database, sql } from "../../../core/database/sql.ts";
import type { LockStore } from "../../../core/lock/lock.ts";
import { decode } from "../../../core/steps/codec.ts";
import { createRuntime, type Runtime } from "../../../core/steps/index.ts";
import { injectFaults } from "../../../core/steps/testing.ts";
import { sqlJournal } from "../../../core/stores/sql/journal/index.ts";
import { runWorker } from "../../../functions/worker/worker.ts";
import { open } from "../../../infra/open.ts";
import { startServer } from "../../../infra/servers/start.ts";
import { pause, until } from "../../support/until.ts";
import { measureFanOut, withWorkers } from "./fan-out.ts";
import { one, ping } from "./workflows.ts";

/** The number of runs whose latency is measured, of each kind. */
const PINGS = 25;

/** The number of runs in the table, and of those that four workers share. */
const RUNS = 200_000;
const DUE = 1_000;

type Counts = Record<string, number>;

/** The longest latencies in milliseconds, and the other limits of `measureTurns`. */
export const TURN_LIMITS: Readonly<Counts> = {
  "start to first step in one process, p50 ms": 20,
  "signal to step in one process, p50 ms": 20,
  "start to first step over etcd, p50 ms": 60,
  "signal to step over etcd, p50 ms": 60,
  "start to first step over redis, p50 ms": 60,
  "signal to step over redis, p50 ms": 60,
  "start to first step by polling, p50 ms": 250,
  "signal to step by polling, p50 ms": 250,
  "calls of the database per second of an idle worker": 12,
  "time of 2,000 children, 2 workers over 1": 1,
  "time of 2,000 children, 4 workers over 1": 1,
  "claims per run won, 4 workers, 200,000 runs": 1.1,
};

/** Measures how soon runs get their turns, and how many workers share them. `openDatabase` opens further clients. */
export async function measureTurns(
  url: string,
  openDatabase: () => Promise<Database>,
  onProgress: (step: string) => void,
): Promise<Counts> {
  const counts: Counts = {};
  const database = await openDatabase();
  const journal = sqlJournal(database);
  onProgress("latency in one process");
  const own = createRuntime({ journal, workflows: [ping] });
  await withOwnWorkers([own], async () => {
    Object.assign(counts, await latencies(own, "in one process"));
  });
  onProgress("calls of an idle worker");
  counts["calls of the database per second of an idle worker"] = await idleCalls(openDatabase);
  for (const kind of ["etcd", "redis"] as const) {
    onProgress(`latency over ${kind}`);
    const server = await startServer(kind, { onProgress });
    const { locks, close } = await open(server.url);
    await withWorkers(1, ["--store", url, "--locks", server.url], async () => {
      const runtime = createRuntime({ journal, locks: locks as LockStore });
      Object.assign(counts, await latencies(runtime, `over ${kind}`));
    });
    await close();
    await server.stop();
  }
  const runtime = createRuntime({ journal });
  onProgress("latency by polling");
  await withWorkers(1, ["--store", url], async () => {
    Object.assign(counts, await latencies(runtime, "by polling"));
  });
  Object.assign(counts, await measureFanOut(runtime, url, onProgress));
  onProgress(`${RUNS} runs in the table`);
  Object.assign(counts, await shareRuns(openDatabase));
  await database.close();
  return counts;
}

/** Runs `work` beside workers in this process. */
async function withOwnWorkers(runtimes: readonly Runtime[], work: () => Promise<void>) {
  const stop = new AbortController();
  const working = runtimes.map((runtime) => runWorker({ runtime, signal: stop.signal }));
  try {
    await work();
  } finally {
    stop.abort();
    await Promise.all(working);
  }
}

/** Starts and signals runs one after another, each after an idle time, so that the worker's pauses have grown. */
async function latencies(runtime: Runtime, kind: string): Promise<Counts> {
  const starts: number[] = [];
  const signals: number[] = [];
  // The first run waits for the start of the worker.
  for (let i = 0; i <= PINGS; i += 1) {
    const startedAt = Date.now();
    const { runId } = await runtime.start(ping, null, { id: crypto.randomUUID() });
    await until(async () => (await runtime.journal.find(runId))?.reason === "signal");
    await idle();
    const sentAt = Date.now();
    await runtime.signal(runId, "go", null, { dedupeId: "1" });
    const run = await until(async () => {
      const shown = await runtime.journal.show(runId);
      return shown?.ending && shown;
    });
    const { begun, woken } = decode<{ begun: number; woken: number }>(run.ending?.value);
    if (i > 0) {
      starts.push(begun - startedAt);
      signals.push(woken - sentAt);
    }
    await idle();
  }
  return {
    [`start to first step ${kind}, p50 ms`]: median(starts),
    [`signal to step ${kind}, p50 ms`]: median(signals),
  };
}

function idle(): Promise<void> {
  return pause(300 + 200 * Math.random());
}

/** Counts the calls of an idle worker, for some seconds. */
async function idleCalls(openDatabase: () => Promise<Database>): Promise<number> {
  const seconds = 5;
  let calls = 0;
  const database = await openDatabase();
  const counted = injectFaults(database, (point) => {
    if (point.endsWith(":before")) calls += 1;
  });
  const runtime = createRuntime({ journal: sqlJournal(counted), workflows: [ping] });
  await withOwnWorkers([runtime], async () => {
    await pause(1_000);
    calls = 0;
    await pause(1_000 * seconds);
  });
  await database.close();
  return calls / seconds;
}

/** Lets four workers share due runs in a table with many others, and counts their claims. */
async function shareRuns(openDatabase: () => Promise<Database>): Promise<Counts> {
  const database = await openDatabase();
  await fill(database);
  const starter = createRuntime({ journal: sqlJournal(database) });
  for (let n = 0; n < DUE; n += 1) await starter.start(one, n, { id: `due ${n}` });
  const clients = await Promise.all(Array.from({ length: 4 }, openDatabase));
  let claims = 0;
  let won = 0;
  const runtimes = clients.map((client) => {
    const journal = sqlJournal(client);
    const claimDue: typeof journal.claimDue = async (...args) => {
      const runs = await journal.claimDue(...args);
      if (won < DUE) claims += 1;
      won += runs.length;
      return runs;
    };
    return createRuntime({ journal: { ...journal, claimDue }, workflows: [one] });
  });
  const startedAt = performance.now();
  await withOwnWorkers(runtimes, async () => {
    await until(async () => won >= DUE, 300_000);
  });
  const seconds = (performance.now() - startedAt) / 1_000;
  for (const client of [database, ...clients]) await client.close();
  return {
    "claims per run won, 4 workers, 200,000 runs": Number((claims / won).toFixed(3)),
    "runs per second, 4 workers in one process, 200,000 runs": Math.round(DUE / seconds),
  };
}

/** Inserts ended and sleeping runs of the workflow. */
async function fill(database: Database): Promise<void> {
  const { now } = database.dialect;
  const batch = 10_000;
  for (let first = 0; first < RUNS; first += batch) {
    await database.batch(
      [
        sql`
          INSERT INTO lockstep_run (
            run_id, workflow, version, input, input_hash, status, epoch, owner, claimed_by, due_at,
            crashes, cancelled, signals, value, started_at, changed_at, expires_at)
          SELECT CONCAT('filler ', ${first} + seq), 'one', 1, '{}', '',
            CASE WHEN seq % 2 = 0 THEN 'completed' ELSE 'parked' END, 1, 'a filler', '',
            CASE WHEN seq % 2 = 0 THEN NULL ELSE ${now} + 3600000000 END, 0, 0, 0, '{}',
            ${now} - seq, ${now},
            CASE WHEN seq % 2 = 0 THEN ${now} + 3600000000 END
          FROM seq_1_to_10000`,
      ],
      AbortSignal.timeout(100_000),
    );
  }
}
