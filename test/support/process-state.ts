import { readFileSync } from "node:fs";

/** Returns the state of a process as Linux tells it: T is stopped, Z has ended. Undefined if there is no such process. */
export function processState(pid: number | undefined): string | undefined {
  try {
    return /\) (\w) /.exec(readFileSync(`/proc/${pid}/stat`, "utf8"))?.[1];
  } catch {
    return undefined;
  }
}
