import { spawn } from "node:child_process";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { median } from "simple-statistics";
import { readWhenAvailable } from "../../core/lock/retry.ts";
import type { MeasuredCode } from "../support/commit.ts";
import { table } from "../support/markdown.ts";
import { tracked } from "../support/running.ts";
import { type StoreSize, sizeOf } from "./size.ts";

/** What a process has at one time. */
interface ProcessSize {
  /** Completed turns: each takes and renews a lock, aborts a waiter, and executes a run. */
  readonly turns: number;

  /** Bytes after a garbage collection. */
  readonly heap: number;

  /** Sockets, pipes and other handles of the process. */
  readonly handles: number;
}

/** What a process and its store have at one time. */
export interface Size extends ProcessSize, StoreSize {}

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
  readonly records: Pair;

  /** Of etcd. */
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
    records: pair("records"),
    ...(last?.leases !== undefined && { leases: pair("leases") }),
    grown,
  };
}

const columns = ["store", "turns", "bytes of the heap", "handles", "records", "leases", "grown"];

export function soakTable({ stores }: Pick<Soak, "stores">): string {
  const count = (number: number) => number.toLocaleString("en");
  const show = (pair: Pair | undefined) =>
    pair ? `${count(pair[0])} → ${count(pair[1])}` : "no leases";
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

/** How long a store on a busy machine may be silent before its size is told, in milliseconds. */
const PATIENCE = 60_000;

/** Runs a process against a store, and compares what both have early and late. */
export async function growth(store: string, url: string, seconds: number): Promise<GrowthReport> {
  const args = ["--expose-gc", LONG_LIVED, url, String(seconds), String(SAMPLES)];
  const child = tracked(spawn(process.execPath, args, { stdio: ["ignore", "pipe", "inherit"] }));
  const sizes: Size[] = [];
  for await (const line of createInterface({ input: child.stdout })) {
    const size = await readWhenAvailable(() => sizeOf(url), AbortSignal.timeout(PATIENCE));
    sizes.push({ ...(JSON.parse(line) as ProcessSize), ...size });
  }
  const missing = SAMPLES - sizes.length;
  const ended = missing > 0 ? [`the process ended ${missing} samples early`] : [];
  return { store, sizes, grown: [...ended, ...grownIn(sizes.slice(WARM_UP))] };
}

/**
 * What may differ between two times without any growth: a share of the first size, and a number. The records are those of
 * the runs of the last seconds, which are not purged yet.
 */
const TOLERATED = {
  heap: [0.05, 1_000_000],
  handles: [0, 2],
  records: [0.05, 200],
  leases: [0, 3],
} as const;

/** Tells what may differ. */
export function tolerances(): string {
  const parts = Object.entries(TOLERATED).map(
    ([kind, [share, most]]) =>
      `${share > 0 ? `${100 * share} % and ` : ""}${most.toLocaleString("en")} (${kind === "heap" ? "bytes of the heap" : kind})`,
  );
  return new Intl.ListFormat("en").format(parts);
}

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
