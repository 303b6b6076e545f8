import { spawn } from "node:child_process";
import { hostname } from "node:os";
import type { HolderInfo } from "../../core/lock/lock.ts";
import { Problem } from "../http/problem.ts";

/** How long a holder stays frozen, in seconds. */
const FROZEN = 5;

/** Stops the process of a holder, and lets it go on after a few seconds. The holder's process may be this one. */
export function freezeHolder(about: HolderInfo | undefined): number {
  const pid = processOf(about);
  // A process of its own, that goes on while this one is frozen.
  spawn("sh", ["-c", `kill -STOP ${pid}; sleep ${FROZEN}; kill -CONT ${pid}`], {
    detached: true,
    stdio: "ignore",
  }).unref();
  return pid;
}

/** Kills the process of a holder. */
export function killHolder(about: HolderInfo | undefined): number {
  const pid = processOf(about);
  if (pid === process.pid) {
    throw new Problem(
      409,
      "OWN_PROCESS",
      "the holder is the process of this console; end it where it was started",
    );
  }
  process.kill(pid, "SIGKILL");
  return pid;
}

/** Returns the process that a holder says it is, if it runs on this machine. */
function processOf({ host, pid }: HolderInfo = {}): number {
  if (pid === undefined || pid < 2) {
    throw new Problem(409, "UNKNOWN_PROCESS", "the holder does not say which process it is");
  }
  if (host !== hostname().slice(0, 100)) {
    throw new Problem(
      409,
      "OTHER_HOST",
      `the holder runs on ${host}, and this console on ${hostname()}`,
    );
  }
  try {
    process.kill(pid, 0);
  } catch {
    throw new Problem(409, "UNKNOWN_PROCESS", `no process ${pid} of this user runs here`);
  }
  return pid;
}
