import type { ChildProcess } from "node:child_process";

/** The processes that tests have begun, and that have not ended. */
export const running = new Set<ChildProcess>();

export function tracked<C extends ChildProcess>(child: C): C {
  running.add(child);
  child.once("exit", () => running.delete(child));
  return child;
}
