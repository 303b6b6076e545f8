import { deadline, race } from "../../core/lock/abort.ts";
import type { Millis } from "../../core/lock/time.ts";

/** Rejects when a store does not answer. */
export type Check = () => Promise<unknown>;

export type Readiness = Readonly<Record<string, "ok" | "failed">>;

/** How long a store may take to answer. */
const LONGEST_CHECK: Millis = 2_000;

/** Asks all stores at once, each for so long at the most; those who ask meanwhile wait for the same answer. */
export function readiness(checks: Readonly<Record<string, Check>>): () => Promise<Readiness> {
  let asking: Promise<Readiness> | undefined;
  return () => {
    asking ??= askAll(checks).finally(() => {
      asking = undefined;
    });
    return asking;
  };
}

async function askAll(checks: Readonly<Record<string, Check>>): Promise<Readiness> {
  const answers = Object.entries(checks).map(async ([name, check]) => [name, await ask(check)]);
  return Object.fromEntries(await Promise.all(answers));
}

async function ask(check: Check): Promise<"ok" | "failed"> {
  using limit = deadline(LONGEST_CHECK, () => new Error("no answer in time"));
  try {
    await race(check(), limit.signal);
    return "ok";
  } catch {
    return "failed";
  }
}
