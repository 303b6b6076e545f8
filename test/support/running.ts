import type { ChildProcess } from "node:child_process";
import { forget, reap } from "../../infra/servers/reap.ts";

/** The running processes that tests have started. */
export const running = new Set<ChildProcess>();

/** Ends the process with the tests, even if they are interrupted. */
export function tracked<C extends ChildProcess>(child: C): C {
  running.add(child);
  const { pid } = child;
  if (pid !== undefined) reap(pid);
  child.once("exit", () => {
    running.delete(child);
    if (pid !== undefined) forget(pid);
  });
  return child;
}
