import { spawn } from "node:child_process";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { median } from "simple-statistics";
import { asNumber, asText, raw, sql } from "../../core/database/sql.ts";
import { redisClient } from "../../core/stores/redis/client/open.ts";
import { open } from "../../infra/open.ts";
import type { MeasuredCode } from "../support/commit.ts";
import { table } from "../support/markdown.ts";
import { tracked } from "../support/running.ts";

/** What a process and its store have at one time. */
export interface Size {
  /** Completed turns: each takes and renews a lock, aborts a waiter, and executes a run. */
  readonly turns: number;

  /** Bytes after a garbage collection. */
  readonly heap: number;

  /** Sockets, pipes and other handles of the process. */
  readonly handles: number;

  /** Rows of a database, keys of etcd or Redis; undefined for other stores. */
  readonly records?: number;

  /** Of etcd. */
  readonly leases?: number;
}

export interface GrowthReport {
  readonly store: string;
  readonly sizes: readonly Size[];

  /** What has grown; empty if nothing has. */
  readonly grown: readonly string[];
}

/** What a soak has measured: at the end of the warm-up, and at the end. */
export interface Soak extends MeasuredCode {
  readonly date: string;
  readonly seconds: number;
  readonly stores: readonly StoreSoak[];
}

type Pair = readonly [first: number, last: number];

interface StoreSoak extends Pick<GrowthReport, "store" | "grown"> {
  readonly turns: number;
  readonly heap: Pair;
  readonly handles: Pair;
  readonly records?: Pair;
  readonly leases?: Pair;
}

export function toStoreSoak({ store, sizes, grown }: GrowthReport): StoreSoak {
  const [first, last] = [sizes[WARM_UP], sizes.at(-1)];
  const pair = (kind: Exclude<keyof Size, "turns">) =>
    [first?.[kind] ?? 0, last?.[kind] ?? 0] as const;
  return {
    store,
    turns: last?.turns ?? 0,
    heap: pair("heap"),
    handles: pair("handles"),
    ...(last?.records !== undefined && { records: pair("records") }),
    ...(last?.leases !== undefined && { leases: pair("leases") }),
    grown,
  };
}

const columns = [
  "store",
  "turns",
  "bytes of the heap",
  "handles",
  "rows or keys",
  "leases",
  "grown",
];

export function soakTable({ stores }: Pick<Soak, "stores">): string {
  const count = (number: number) => number.toLocaleString("en");
  const show = (pair: Pair | undefined) => (pair ? `${count(pair[0])} → ${count(pair[1])}` : "");
  const rows = stores.map(({ store, turns, heap, handles, records, leases, grown }) => [
    ...[store, count(turns), show(heap), show(handles), show(records), show(leases)],
    grown.join("; ") || "nothing",
  ]);
  return table(columns, rows);
}

const LONG_LIVED = fileURLToPath(new URL("./long-lived.ts", import.meta.url));

/** Samples of a process, and those of them at the beginning that do not count: caches and compiled code grow at first. */
const SAMPLES = 60;
const WARM_UP = 12;

/** Runs a process against a store, and compares what both have early and late. */
export async function growth(store: string, url: string, seconds: number): Promise<GrowthReport> {
  const args = ["--expose-gc", LONG_LIVED, url, String(seconds), String(SAMPLES)];
  const child = tracked(spawn(process.execPath, args, { stdio: ["ignore", "pipe", "inherit"] }));
  const sizes: Size[] = [];
  for await (const line of createInterface({ input: child.stdout })) {
    sizes.push({ ...(JSON.parse(line) as Size), ...(await sizeOf(url)) });
  }
  const missing = SAMPLES - sizes.length;
  const ended = missing > 0 ? [`the process ended ${missing} samples early`] : [];
  return { store, sizes, grown: [...ended, ...grownIn(sizes.slice(WARM_UP))] };
}

/** What may differ between two times without any growth: a share of the first size, and a number. */
const TOLERATED = {
  heap: [0.05, 1_000_000],
  handles: [0, 2],
  records: [0.05, 200],
  leases: [0, 3],
} as const;

/** Compares the first third of the sizes with the last third. */
export function grownIn(sizes: readonly Size[]): readonly string[] {
  const third = Math.floor(sizes.length / 3);
  if (third === 0) return ["there are too few samples"];
  const kinds = Object.keys(TOLERATED) as (keyof typeof TOLERATED)[];
  return kinds.flatMap((kind) => {
    const of = (part: readonly Size[]) => median(part.map((size) => size[kind] ?? 0));
    const [early, late] = [of(sizes.slice(0, third)), of(sizes.slice(-third))];
    const [share, most] = TOLERATED[kind];
    return late > early * (1 + share) + most ? [`${kind}: ${early}, later ${late}`] : [];
  });
}

async function sizeOf(url: string): Promise<Partial<Size>> {
  if (url.startsWith("etcd:")) return sizeOfEtcd(url.slice("etcd://".length));
  if (url.startsWith("redis:")) {
    const { hostname: host, port } = new URL(url);
    await using redis = redisClient({ host, port: Number(port) });
    return { records: Number(await redis.call(["DBSIZE"])) };
  }
  await using opened = await open(url);
  if (!opened.has("database")) return {};
  const { database } = opened;
  const tables = url.startsWith("sqlite:")
    ? sql`SELECT name FROM sqlite_master WHERE type = 'table' AND name LIKE 'lockstep%'`
    : sql`SELECT table_name AS name FROM information_schema.tables WHERE table_name LIKE 'lockstep%'`;
  let records = 0;
  for (const { name } of await database.read(tables)) {
    const [row] = await database.read(sql`SELECT COUNT(*) AS found FROM ${raw(asText(name))}`);
    records += asNumber(row?.found);
  }
  return { records };
}

async function sizeOfEtcd(address: string): Promise<Partial<Size>> {
  const ask = async (path: string, body: object) => {
    const answer = await fetch(`http://${address}/v3/${path}`, {
      method: "POST",
      body: JSON.stringify(body),
    });
    return (await answer.json()) as {
      readonly count?: string;
      readonly leases?: readonly object[];
    };
  };
  // All keys: from the key 0 to the end.
  const all = Buffer.from("\0").toString("base64");
  const { count = "0" } = await ask("kv/range", { key: all, range_end: all, count_only: true });
  const { leases = [] } = await ask("lease/leases", {});
  return { records: Number(count), leases: leases.length };
}
