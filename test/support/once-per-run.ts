import { mkdir, readFile, rename, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { until } from "./until.ts";

/** How long the other workers wait, in milliseconds. */
const LIMIT = 600_000;

/** Does the work once for all workers of a test run. Returns its result, which passes through JSON. */
export async function oncePerRun<T>(name: string, work: () => Promise<T>): Promise<T> {
  // The temporary folder belongs to the run, and is removed with it.
  const folder = join(tmpdir(), `lockstep-once-${name}`);
  const outcome = join(folder, "outcome.json");
  if (await isFirst(folder)) await writeWhole(outcome, JSON.stringify(await settle(work)));
  const { error, result } = JSON.parse(await until(() => read(outcome), LIMIT));
  if (error !== undefined) throw new Error(error);
  return result;
}

function isFirst(folder: string): Promise<boolean> {
  return mkdir(folder).then(
    () => true,
    (error) => {
      if (error.code === "EEXIST") return false;
      throw error;
    },
  );
}

function settle<T>(work: () => Promise<T>): Promise<{ result: T } | { error: string }> {
  return work().then(
    (result) => ({ result }),
    (error) => ({ error: String(error) }),
  );
}

/** Writes a file that no reader sees in part. */
async function writeWhole(file: string, text: string): Promise<void> {
  await writeFile(`${file}.new`, text);
  await rename(`${file}.new`, file);
}

function read(file: string): Promise<string | undefined> {
  return readFile(file, "utf8").catch(() => undefined);
}
