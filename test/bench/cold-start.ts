import { fork } from "node:child_process";
import { once } from "node:events";
import { readFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";
import { mean, sum } from "simple-statistics";
import { bundle } from "../../infra/aws/bundle.ts";
import type { Reporter } from "./measure.ts";

/** A function, and an event for it. */
export interface ColdFunction {
  readonly name: string;

  /** Where its module lies, which exports a `handler`. */
  readonly path: string;

  /** Added to the environment's variables. */
  readonly env?: NodeJS.ProcessEnv;

  /** Its first event, another one each time. Without it, the function is only loaded. */
  readonly event?: () => unknown;

  /** Whether it has answered as it should. Default: anything will do. */
  readonly isRight?: (result: unknown) => boolean;
}

/** What of a bundle is loaded, in bytes: minified, and each file of it packed by gzip. */
export interface Loaded {
  readonly atImport: Size;

  /** What the first answer needs besides. */
  readonly atAnswer: Size;
}

export interface Size {
  readonly bytes: number;
  readonly gzip: number;
}

/** A function in a bundle of its own. */
export interface Bundled {
  readonly loaded: Loaded;
  readonly contender: Reporter;
}

const RUN = fileURLToPath(new URL("./cold/run.ts", import.meta.url));

/** Bundles a function as the deployed ones are, into a folder of its own. */
export async function bundled(fn: ColdFunction, folder: string): Promise<Bundled> {
  await bundle(fn.path, folder);
  const module = `file://${folder}/index.js`;
  const { files } = await startCold(fn, module, { LIST_FILES: "1" });
  return {
    loaded: { atImport: await sizeOf(files.atImport), atAnswer: await sizeOf(files.atAnswer) },
    contender: { name: fn.name, report: (blockMillis) => report(fn, module, blockMillis) },
  };
}

/** One cold start after the other, each in a new process. */
async function report(fn: ColdFunction, module: string, blockMillis: number) {
  const startedAt = performance.now();
  const starts: Started[] = [];
  do starts.push(await startCold(fn, module));
  while (performance.now() - startedAt < blockMillis);
  const imports = starts.map(({ importMillis }) => importMillis);
  const answers = starts.map(({ answerMillis }) => answerMillis);
  const millis = starts.map(({ importMillis, answerMillis }) => importMillis + answerMillis);
  const parts = { import: imports, ...(fn.event && { answer: answers }) };
  return { rate: 1_000 / mean(millis), millis, shares: [starts.length], parts };
}

interface Started {
  readonly importMillis: number;
  readonly answerMillis: number;
  readonly result: unknown;

  /** Those of Node itself are among them. */
  readonly files: { readonly atImport: readonly string[]; readonly atAnswer: readonly string[] };
}

async function startCold(
  { name, env, event, isRight = () => true }: ColdFunction,
  module: string,
  more: NodeJS.ProcessEnv = {},
): Promise<Started> {
  const child = fork(RUN, [module, ...(event ? [JSON.stringify(event())] : [])], {
    // As on Lambda, where nothing is compiled ahead unless a function sees to it.
    env: { ...process.env, ...env, ...more, NODE_DISABLE_COMPILE_CACHE: "1" },
    // Standard output is its log.
    stdio: ["ignore", "ignore", "inherit", "ipc"],
    serialization: "advanced",
  });
  const ended = once(child, "exit").then(() => undefined);
  const [started] = ((await Promise.race([once(child, "message"), ended])) ?? []) as [Started?];
  if (!started) throw new Error(`${name} has ended without an answer`);
  await ended;
  if (event && !isRight(started.result)) {
    throw new Error(`${name} has answered ${JSON.stringify(started.result)}`);
  }
  return started;
}

async function sizeOf(urls: readonly string[]): Promise<Size> {
  const own = urls.filter((url) => url.startsWith("file:"));
  const files = await Promise.all(own.map((url) => readFile(fileURLToPath(url))));
  return {
    bytes: sum(files.map(({ length }) => length)),
    gzip: sum(files.map((file) => gzipSync(file).length)),
  };
}
