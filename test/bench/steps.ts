import { randomUUID } from "node:crypto";
import { z } from "zod";
import { type Database, sql } from "../../core/database/sql.ts";
import type { LockStore } from "../../core/lock/lock.ts";
import { createRuntime, workflow } from "../../core/steps/index.ts";
import { injectFaults } from "../../core/steps/testing.ts";
import { memoryLocks } from "../../core/stores/memory/locks.ts";
import { mysqlDatabase } from "../../core/stores/mysql/database.ts";
import { sqlJournal } from "../../core/stores/sql/journal/index.ts";
import { sqlLocks } from "../../core/stores/sql/locks.ts";
import { migrate } from "../../core/stores/sql/migrate.ts";
import { startServer } from "../../infra/servers/start.ts";
import { versionOf } from "../peers/version-of.ts";
import { KINDS, RUNS } from "./beside-dbos.ts";
import type { Comparison, Contender } from "./measure.ts";
import { installPeers, loadPeer } from "./peers.ts";
import type { Suite } from "./suite.ts";
import { measureReplays, REPLAY_LIMITS } from "./turns/replays.ts";
import { measureTurns, TURN_LIMITS } from "./turns/turns.ts";

/** The number of steps of one run. */
export const STEPS = 20;

const [, CLIENTS] = RUNS;

interface Dbos {
  startDbos(url: string, steps: number, poolSize: number): Promise<Peer>;
}

interface Peer extends Workflows {
  stop(): Promise<void>;
}

/** Each call executes one run. */
interface Workflows {
  plain(): Promise<unknown>;
  transacted(): Promise<unknown>;
}

/** The turns of runs, and durable steps on MariaDB, compared with DBOS on PostgreSQL. Both servers use their durable default settings. */
export const stepsSuite: Suite = async (onProgress, { alone }) => {
  const server = await startServer("mariadb", { onProgress });
  const counts = {
    ...(await measureReplays(onProgress)),
    ...(await measureTurns(server.url, () => openDatabase(server.url), onProgress)),
  };
  const notes = [await countCalls(server.url)];
  const about = { counts, limits: { ...REPLAY_LIMITS, ...TURN_LIMITS }, notes };
  if (alone) {
    const close = () => server.stop();
    return { server: server.version, ...about, contenders: [], comparisons: [], close };
  }
  const postgres = await startServer("postgres", { onProgress });
  const database = await openDatabase(server.url);
  const beside = await startBesideDbos(database, postgres.url, onProgress);
  return {
    server: `${server.version}; ${postgres.version}`,
    ...about,
    contenders: beside.contenders,
    // No ratio: it would compare two databases.
    comparisons: [
      { name: "CPU of a plain step", of: "plain steps, 1 at a time", by: "cpu", aim: 0.3 },
    ],
    notes: [...notes, ...beside.notes],
    async close() {
      await beside.close();
      await database.close();
      await postgres.stop();
      await server.stop();
    },
  };
};

interface ComparisonOptions {
  readonly onProgress: (step: string) => void;

  /** The aims for one run and for eight runs at a time. */
  readonly aims: readonly [number, number];
}

/** Compares steps in a database with those of DBOS in the database of the URL. Both are on one server. */
export async function compareWithDbos(
  database: Database,
  url: string,
  { onProgress, aims: [aimOfOne, aimOfMany] }: ComparisonOptions,
) {
  const comparisons = RUNS.flatMap((clients) =>
    KINDS.map(({ ours: of, theirs: over, comparison: name }): Comparison => {
      const all = `, ${clients} at a time`;
      const aim = clients === 1 ? aimOfOne : aimOfMany;
      return { name: name + all, of: of + all, over: over + all, by: "rate", aim };
    }),
  );
  return { ...(await startBesideDbos(database, url, onProgress)), comparisons };
}

/** Starts the contenders: steps in a database, and those of DBOS in the database of the URL. */
async function startBesideDbos(
  database: Database,
  url: string,
  onProgress: (step: string) => void,
) {
  await installPeers(onProgress);
  const { startDbos } = await loadPeer<Dbos>("dbos");
  const dbos = await startDbos(url, STEPS, CLIENTS);
  const inMemory = memoryLocks();
  const ours = workflowsOn(database, inMemory);
  const locked = workflowsOn(database, sqlLocks(database));
  const contenders: Contender[] = RUNS.flatMap((clients) => {
    const named = (name: string, run: () => Promise<unknown>): Contender => {
      return { name: `${name}, ${clients} at a time`, batch: STEPS, clients, run };
    };
    return [
      named("plain steps", ours.plain),
      named("plain steps, DBOS", dbos.plain),
      named("transacted steps, locks in memory", ours.transacted),
      named("transacted steps, locks in the database", locked.transacted),
      named("transacted steps, DBOS (no locks)", dbos.transacted),
    ];
  });
  const close = async () => {
    await inMemory.close();
    await dbos.stop();
  };
  const packages = ["@dbos-inc/dbos-sdk", "@dbos-inc/postgres-datasource"].map(versionOf);
  return { contenders, notes: [`DBOS: ${packages.join(", ")}`], close };
}

async function openDatabase(url: string): Promise<Database> {
  const { hostname: host, port, username: user, pathname } = new URL(url);
  const login = { host, port: Number(port), user, database: pathname.slice(1) };
  const database = mysqlDatabase({ ...login, connections: CLIENTS });
  await prepare(database);
  return database;
}

/** Makes the tables of the workflows. */
export async function prepare(database: Database): Promise<void> {
  await migrate(database);
  await database.batch([sql`CREATE TABLE IF NOT EXISTS effect (step INT NOT NULL)`]);
}

/** Returns the compared workflows on a database, with transacted steps under the locks. */
export function workflowsOn(database: Database, locks: LockStore): Workflows {
  const input = z.object({});
  const runtime = createRuntime({ journal: sqlJournal(database), locks });
  const plain = workflow({ name: "plain", version: 1, input }, async ({ step }) => {
    for (let i = 0; i < STEPS; i += 1) await step("step", async () => i);
  });
  const transacted = workflow(
    { name: "transacted", version: 1, input },
    async ({ step, runId }) => {
      for (let i = 0; i < STEPS; i += 1) {
        await step.tx("step", { lock: runId }, async ({ tx }) => {
          await tx.batch([sql`INSERT INTO effect (step) VALUES (${i})`]);
        });
      }
    },
  );
  const id = () => ({ id: randomUUID() });
  return {
    plain: () => runtime.execute(plain, {}, id()),
    transacted: () => runtime.execute(transacted, {}, id()),
  };
}

/** Counts the calls of the database per step. Calls within a transaction are named tx. */
async function countCalls(url: string): Promise<string> {
  const calls = new Map<string, number>();
  const database = injectFaults(await openDatabase(url), (point) => {
    const [name = "", when] = point.split(":");
    if (when === "before") calls.set(name, (calls.get(name) ?? 0) + 1);
  });
  const locks = memoryLocks();
  const { plain, transacted } = workflowsOn(database, locks);
  const perStep = async (run: () => Promise<unknown>) => {
    calls.clear();
    await run();
    // Claiming and ending the run are one call each as well.
    return [...calls].map(([name, count]) => `${(count / STEPS).toFixed(1)} ${name}`).join(", ");
  };
  const counts = `calls per step, of ${STEPS}: plain ${await perStep(plain)}; transacted ${await perStep(transacted)}`;
  await locks.close();
  await database.close();
  return counts;
}
