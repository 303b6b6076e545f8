import { mkdir, writeFile } from "node:fs/promises";
import { type Profiler, type Runtime, Session } from "node:inspector/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { sum } from "simple-statistics";
import { type Profiled, type ProfileOptions, type Repeated, repeat } from "./measure.ts";

/** The microseconds between two samples. */
export const INTERVAL = 100;

/**
 * Runs a contender under V8's profiler, and writes `NAME.cpuprofile`.
 *
 * The time of other processes, such as a server, counts as "waiting", or as native code where a write to a socket hands
 * the core over to them: the samples go by elapsed time.
 */
export async function profile(
  contender: Repeated,
  { folder, millis }: ProfileOptions,
): Promise<Profiled> {
  // The code is compiled, and connections are open, before the profile begins.
  await repeat(contender, millis / 4);
  const session = new Session();
  session.connect();
  await session.post("Profiler.enable");
  await session.post("Profiler.setSamplingInterval", { interval: INTERVAL });
  await session.post("Profiler.start");
  const { shares } = await repeat(contender, millis);
  const { profile } = await session.post("Profiler.stop");
  session.disconnect();
  const { name } = contender;
  await mkdir(folder, { recursive: true });
  const file = `${name.replace(/[^\w.]+/g, "-")}.cpuprofile`;
  await writeFile(join(folder, file), JSON.stringify(profile));
  const operations = sum(shares);
  return { name, operations, parts: partsOf(profile, { operations }) };
}

interface Part {
  /** How many operations the profiles have. Default 1. */
  readonly operations?: number;

  /** The part of the profiles that counts, in microseconds of `process.hrtime`. Default: all. */
  readonly from?: number;
  readonly to?: number;
}

/** Returns the microseconds per operation that each group of files took itself. */
export function partsOf(
  { nodes, samples = [], timeDeltas = [], startTime }: Profiler.Profile,
  { operations = 1, from = 0, to = Number.POSITIVE_INFINITY }: Part = {},
): Profiled["parts"] {
  const groups = new Map(nodes.map(({ id, callFrame }) => [id, groupOf(callFrame)]));
  const micros = new Map<string, number>();
  let at = startTime;
  samples.forEach((id, i) => {
    const span = timeDeltas[i] ?? 0;
    at += span;
    if (at < from || at > to) return;
    const group = groups.get(id) ?? "";
    micros.set(group, (micros.get(group) ?? 0) + span / operations);
  });
  return inOrder(micros);
}

/** Returns the mean of the parts of several profiles. */
export function meanOf(all: readonly Profiled["parts"][]): Profiled["parts"] {
  const sums = new Map<string, number>();
  for (const [part, micros] of all.flatMap(Object.entries<number>)) {
    sums.set(part, (sums.get(part) ?? 0) + micros / all.length);
  }
  return inOrder(sums);
}

function inOrder(micros: ReadonlyMap<string, number>): Profiled["parts"] {
  const sorted = [...micros].sort(([, a], [, b]) => b - a);
  return Object.fromEntries(sorted.map(([part, each]) => [part, Number(each.toFixed(1))]));
}

/** A function that is bundled for a cold start. */
const BUNDLE = /\/lockstep-cold-[^/]+\/\d+\//;

const ROOT = fileURLToPath(new URL("../../", import.meta.url));

/** Returns the package, the folder of the project, or the part of Node and V8 to which a function belongs. */
function groupOf({ url, functionName }: Runtime.CallFrame): string {
  if (functionName === "(idle)") return "waiting";
  if (functionName === "(garbage collector)") return "garbage collection";
  if (url.startsWith("node:")) return "node";
  if (url === "") return "V8 and native code";
  if (BUNDLE.test(url)) return "functions/bundled";
  const path = url.startsWith("file:") ? fileURLToPath(url) : url;
  const [, name] = /.*node_modules\/((?:@[^/]+\/)?[^/]+)/.exec(path) ?? [];
  if (name !== undefined) return name;
  const [, folder = path] =
    /^(core\/stores\/[^/]+|[^/]+\/[^/]+)\//.exec(path.replace(ROOT, "")) ?? [];
  return folder;
}
