import { sealFence } from "../../../core/lock/fence.ts";
import type { Millis } from "../../../core/lock/time.ts";
import { get } from "../../../core/stores/etcd/client/etcd.ts";
import { keyOfFence } from "../../../core/stores/etcd/client/names.ts";
import { readConfig } from "../../../infra/config.ts";
import type { AnyStore } from "../../../infra/open.ts";
import { IncidentWriter } from "../../telemetry/incident-records.ts";
import { describeError, EXIT, exitStatusOfSignal } from "../exit-status.ts";
import { parseDuration } from "../options.ts";
import { cleanUp } from "../store.ts";
import { note, print, warn } from "../terminal/output.ts";
import { type HeldLock, runWhileHeld } from "./run-while-held.ts";
import { nextSignal, onSignal } from "./signals.ts";

/** A paragraph of the help: the environment of the command. */
export const HELD_HELP = `The command's environment has LOCKSTEP_NAME and LOCKSTEP_FENCE, and
LOCKSTEP_SEALED_FENCE if LOCKSTEP_SECRET is set; on etcd also ETCD_LOCK_KEY and
ETCD_LOCK_REV, as \`etcdctl lock\` sets them.`;

/**
 * Acquires, runs the command while it holds what it has acquired, and releases it. Without a command, holds it until a
 * signal. Resolves to the exit status of this process, also if a signal ends the wait.
 */
export async function holdAndRun(
  opened: AnyStore,
  acquire: (signal: AbortSignal) => Promise<HeldLock>,
  [file, ...words]: readonly string[],
  { ttl }: { readonly ttl: string },
): Promise<number> {
  const interruption = new AbortController();
  using _listening = onSignal((signal) => interruption.abort(signal));
  const held = await acquire(interruption.signal).catch((error) => {
    if (!interruption.signal.aborted) throw error;
  });
  if (held === undefined) return exitStatusOfSignal(interruption.signal.reason);
  const incidents = new IncidentWriter(() => opened.locks);
  const leaveIncident = () => {
    const { name: lock, fence, signal } = held;
    const { message: why } = signal.reason;
    void incidents.leave({ kind: "lost", lock, fence: String(fence), why });
  };
  held.signal.addEventListener("abort", leaveIncident);
  try {
    const environment = await environmentOf(held, opened);
    if (interruption.signal.aborted) return exitStatusOfSignal(interruption.signal.reason);
    if (file === undefined) return await holdUntilSignal(held, parseDuration("ttl", ttl));
    return await runWhileHeld(held, [file, ...words], environment);
  } finally {
    held.signal.removeEventListener("abort", leaveIncident);
    const released = held[Symbol.asyncDispose]();
    // A lost lock needs no release, and its store may hang.
    await (held.signal.aborted ? cleanUp(released) : released);
  }
}

/** Shows the holder of a lock, or the leader of an election, if it is not disposed within a second. */
export function noticeHolder(what: string, { locks }: AnyStore, name: string): Disposable {
  const timer = setTimeout(async () => {
    const { holder } = await locks.inspect(name).catch(() => ({ holder: undefined }));
    note(`${what} ${name}${holder ? `, held by ${holder}` : ""} …`);
  }, 1_000);
  return { [Symbol.dispose]: () => clearTimeout(timer) };
}

async function environmentOf(held: HeldLock, opened: AnyStore): Promise<Record<string, string>> {
  const { secret } = readConfig();
  return {
    LOCKSTEP_NAME: held.name,
    LOCKSTEP_FENCE: held.fence.toString(),
    ...(secret && { LOCKSTEP_SEALED_FENCE: await sealFence(held.fence, secret) }),
    ...(await etcdEnvironmentOf(held, opened)),
  };
}

/**
 * Returns the variables that `etcdctl lock` sets: the lock's key, and a revision of etcd read after the acquisition.
 * These revisions rise from holder to holder, etcdctl included.
 */
async function etcdEnvironmentOf(
  { fence, signal }: HeldLock,
  opened: AnyStore,
): Promise<Record<string, string>> {
  const key = keyOfFence(fence);
  if (!opened.has("etcd") || key === undefined) return {};
  const { revision } = await opened.etcd.range(get(key, { keysOnly: true }), signal);
  return { ETCD_LOCK_KEY: key, ETCD_LOCK_REV: String(revision) };
}

/** Prints what is held and holds it until a signal arrives or it is lost. Returns the exit status. */
async function holdUntilSignal(held: HeldLock, ttlMillis: Millis): Promise<number> {
  const { name, fence } = held;
  print(JSON.stringify({ name, fence: fence.toString(), ttlMillis }));
  await nextSignal(held.signal);
  if (!held.signal.aborted) return 0;
  warn(describeError(held.signal.reason));
  return EXIT.lost;
}
