import { writeFile } from "node:fs/promises";
import { linearRegression } from "simple-statistics";
import { note, print, warn } from "../../../functions/cli/terminal/output.ts";
import { table } from "../../../functions/cli/terminal/table.ts";
import { installPeers, loadPeer } from "../peers.ts";
import type { Measurement } from "../suite.ts";
import { GROWTHS, type Growth, type Point } from "./series.ts";
import { type GrowingStoreName, openGrowingStore } from "./stores.ts";

/** The name of this suite, which has no contenders. */
export const GROWTH = "growth";

/** The cost of an operation of one store against a size. */
export interface Series {
  readonly store: GrowingStoreName;
  readonly name: string;
  readonly operation: string;
  readonly points: readonly Point[];

  /** The cost grows as the size to the power of this. Undefined for fewer than three sizes. */
  readonly exponent: number | undefined;
}

export interface GrowthOptions {
  readonly stores: readonly GrowingStoreName[];

  /** The time of the whole suite, in seconds. A series ends at the size that takes it past its share. */
  readonly seconds: number;
  readonly json: boolean;

  /** The file of the chart. */
  readonly chart: string | undefined;
}

/** What `--json` prints. */
export interface GrowthReport {
  readonly suite: typeof GROWTH;

  /** Of a measurement alone, after the suites. */
  readonly measured?: Pick<Measurement, "date" | "commit">;
  readonly series: readonly Series[];
}

interface Charts {
  drawGrowth(series: readonly Series[]): string;
}

/** Measures how costs grow, on one store after the other, and prints the exponents. */
export async function growthSuite({ stores, seconds, json, chart }: GrowthOptions): Promise<void> {
  const share = (seconds * 1_000) / stores.length / GROWTHS.length;
  const series: Series[] = [];
  for (const name of stores) {
    const store = await openGrowingStore(name, note);
    try {
      for (const growth of GROWTHS) {
        note(`${name}: ${growth.name}`);
        const points: Point[] = [];
        const limit = AbortSignal.timeout(share);
        try {
          for await (const point of growth.measure(store, limit)) points.push(rounded(point));
        } catch (error) {
          // Without the points after the failure, the exponent is still that of the points before.
          if (!limit.aborted) warn(`${name}, ${growth.name}: ${error}`);
        }
        if (points.length > 0) series.push(toSeries(name, growth, points));
      }
    } finally {
      await store.close();
    }
  }
  if (chart !== undefined) {
    await installPeers(note);
    const { drawGrowth } = await loadPeer<Charts>("charts");
    await writeFile(chart, drawGrowth(series));
  }
  if (json) print(JSON.stringify({ suite: GROWTH, series } satisfies GrowthReport));
  else print(table(HEAD, series.map(toRow)));
}

function rounded({ size, millis, bytes }: Point): Point {
  const point = { size, millis: Number(millis.toPrecision(3)) };
  return bytes === undefined ? point : { ...point, bytes: Math.round(bytes) };
}

function toSeries(
  store: GrowingStoreName,
  { name, operation }: Growth,
  points: readonly Point[],
): Series {
  return { store, name, operation, points, exponent: exponentOf(points) };
}

/** Fits a line to the logarithms, by least squares. */
export function exponentOf(points: readonly Point[]): number | undefined {
  if (points.length < 3) return undefined;
  const logarithms = points.map(({ size, millis }) => [Math.log(size), Math.log(millis)]);
  // -0 + 0 is 0.
  return Number(linearRegression(logarithms).m.toFixed(2)) + 0;
}

export const HEAD = [
  "store",
  "grows",
  "sizes",
  "ms, least size",
  "ms, largest",
  "exponent",
  "kB each",
];

export function toRow({ store, name, points, exponent }: Series) {
  const [first, last] = [points[0] as Point, points.at(-1) as Point];
  const bytes = points.findLast((point) => point.bytes !== undefined)?.bytes;
  return [
    store,
    name,
    `${first.size} to ${last.size}`,
    first.millis,
    last.millis,
    exponent ?? "",
    bytes === undefined ? "" : Number((bytes / 1_000).toFixed(1)),
  ];
}
