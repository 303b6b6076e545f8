import { fork } from "node:child_process";
import { once } from "node:events";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";
import { mean, sum } from "simple-statistics";
import { bundle } from "../../infra/aws/bundle.ts";
import type { Profiled, ProfileOptions, Reporter } from "./measure.ts";
import { INTERVAL, meanOf, partsOf } from "./profile.ts";

/** A function to start, and its first event. */
export interface ColdFunction {
  readonly name: string;

  /** The path of the module, which exports a `handler`. */
  readonly path: string;

  /** Additional environment variables. */
  readonly env?: NodeJS.ProcessEnv;

  /** Whether Node finds the compiled code of earlier starts. Default false: Lambda keeps no compile cache. */
  readonly compileCache?: boolean;

  /** Creates the first event, a new one for each start. Without it, the function is only loaded. */
  readonly event?: () => unknown;

  /** Whether the answer is correct. Default: every answer is. */
  readonly isRight?: (result: unknown) => boolean;
}

/** The bytes of a bundle that are loaded: minified, and with each file compressed by gzip. */
export interface Loaded {
  readonly atImport: Size;

  /** Loaded after the import, for the first answer. */
  readonly atAnswer: Size;
}

export interface Size {
  readonly bytes: number;
  readonly gzip: number;
}

/** A bundled function. */
export interface Bundled {
  readonly loaded: Loaded;
  readonly contender: Reporter;
}

const RUN = fileURLToPath(new URL("./cold/run.ts", import.meta.url));

/** Bundles a function like the deployed ones, into `folder`. */
export async function bundled(fn: ColdFunction, folder: string): Promise<Bundled> {
  await bundle(fn.path, folder);
  const module = `file://${folder}/index.js`;
  const { files } = await startCold(fn, module, { LIST_FILES: "1" });
  return {
    loaded: { atImport: await sizeOf(files.atImport), atAnswer: await sizeOf(files.atAnswer) },
    contender: {
      name: fn.name,
      report: (blockMillis) => report(fn, module, blockMillis),
      profile: (options) => profile(fn, module, options),
    },
  };
}

/** Makes cold starts one after another, each in a new process. */
async function report(fn: ColdFunction, module: string, blockMillis: number) {
  const startedAt = performance.now();
  const starts: Started[] = [];
  do starts.push(await startCold(fn, module));
  while (performance.now() - startedAt < blockMillis);
  const imports = starts.map(({ importMillis }) => importMillis);
  const answers = starts.map(({ answerMillis }) => answerMillis);
  const millis = starts.map(({ importMillis, answerMillis }) => importMillis + answerMillis);
  const cpu = starts.map(({ cpuMillis }) => cpuMillis);
  const parts = { import: imports, ...(fn.event && { answer: answers }), cpu };
  return { rate: 1_000 / mean(millis), millis, shares: [starts.length], parts };
}

/** Makes cold starts under V8's profiler, and returns the mean of their parts. */
async function profile(
  fn: ColdFunction,
  module: string,
  { folder, millis }: ProfileOptions,
): Promise<Profiled> {
  const own = join(folder, fn.name.replace(/[^\w.]+/g, "-"));
  const options = ["--cpu-prof", `--cpu-prof-dir=${own}`, `--cpu-prof-interval=${INTERVAL}`];
  const startedAt = performance.now();
  const all: Profiled["parts"][] = [];
  do {
    const name = `${all.length}.cpuprofile`;
    const { window } = await startCold(fn, module, {}, [...options, `--cpu-prof-name=${name}`]);
    all.push(partsOf(JSON.parse(await readFile(join(own, name), "utf8")), window));
  } while (performance.now() - startedAt < millis);
  return { name: fn.name, operations: all.length, parts: meanOf(all) };
}

interface Started {
  readonly importMillis: number;
  readonly answerMillis: number;

  /** Of all threads, from the start of the import to the first answer. Other load on the machine changes it less. */
  readonly cpuMillis: number;
  readonly result: unknown;

  /** From the start of the import to the first answer, in microseconds of the profiles' clock. */
  readonly window: { readonly from: number; readonly to: number };

  /** URLs of loaded files, Node's own modules included. */
  readonly files: { readonly atImport: readonly string[]; readonly atAnswer: readonly string[] };
}

async function startCold(
  { name, env, compileCache, event, isRight = () => true }: ColdFunction,
  module: string,
  more: NodeJS.ProcessEnv = {},
  execArgv: readonly string[] = [],
): Promise<Started> {
  const child = fork(RUN, [module, ...(event ? [JSON.stringify(event())] : [])], {
    env: { ...process.env, ...env, ...more, ...cacheOf(module, compileCache) },
    // The function logs to standard output.
    stdio: ["ignore", "ignore", "inherit", "ipc"],
    serialization: "advanced",
    execArgv: [...execArgv],
  });
  const ended = once(child, "exit").then(() => undefined);
  const [started] = ((await Promise.race([once(child, "message"), ended])) ?? []) as [Started?];
  if (!started) throw new Error(`${name} ended without an answer`);
  await ended;
  if (event && !isRight(started.result)) {
    throw new Error(`${name} answered ${JSON.stringify(started.result)}`);
  }
  return started;
}

function cacheOf(module: string, compileCache = false): NodeJS.ProcessEnv {
  if (!compileCache) return { NODE_DISABLE_COMPILE_CACHE: "1" };
  return { NODE_COMPILE_CACHE: fileURLToPath(new URL("./compile-cache", module)) };
}

async function sizeOf(urls: readonly string[]): Promise<Size> {
  const own = urls.filter((url) => url.startsWith("file:"));
  const files = await Promise.all(own.map((url) => readFile(fileURLToPath(url))));
  return {
    bytes: sum(files.map(({ length }) => length)),
    gzip: sum(files.map((file) => gzipSync(file).length)),
  };
}
