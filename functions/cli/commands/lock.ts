import type { CommandModule } from "yargs";
import { hasCode } from "../../../core/lock/errors.ts";
import { sealFence } from "../../../core/lock/fence.ts";
import type { Lock } from "../../../core/lock/lock.ts";
import { get } from "../../../core/stores/etcd/client/etcd.ts";
import { keyOfFence } from "../../../core/stores/etcd/client/names.ts";
import { readConfig } from "../../../infra/config.ts";
import type { AnyStore } from "../../../infra/open.ts";
import { EXIT, exitStatusOfSignal } from "../exit-status.ts";
import { parseDuration, type StoreArgs, storeOption } from "../options.ts";
import { runUnderLock } from "../process/run-under-lock.ts";
import { nextSignal, onSignal } from "../process/signals.ts";
import { cleanUp, withStore, withTimeout } from "../store.ts";
import { note, print, warn } from "../terminal/output.ts";

interface LockArgs extends StoreArgs {
  readonly name: string;
  readonly ttl: string;
  readonly wait: string;
  readonly "max-hold": string;
  readonly "lock-delay": string;
  readonly json: boolean;
}

/** `command` holds the words behind "--". */
export const lockCommand = (command: readonly string[]): CommandModule<unknown, LockArgs> => ({
  command: "lock <name>",
  describe: "Wait for a lock and run a command while holding it",
  builder: (yargs) =>
    storeOption(yargs)
      .positional("name", { type: "string", demandOption: true, describe: "the lock's name" })
      .option("ttl", {
        type: "string",
        default: "10s",
        describe: "how long the store keeps the lock after its last renewal",
      })
      .option("wait", {
        type: "string",
        default: "30s",
        describe: "how long to wait for the lock; 0 tries once",
      })
      .option("max-hold", {
        type: "string",
        default: "24h",
        describe: "the longest time to hold the lock",
      })
      .option("lock-delay", {
        type: "string",
        default: "0",
        describe: "how long a lost lock stays unavailable",
      })
      .option("json", {
        type: "boolean",
        default: false,
        describe: "if the lock is busy, print its holder as one JSON line",
      })
      .usage("$0 lock <name> [options] [-- command ...]")
      .example("$0 lock nightly-report -- node report.js", "run one instance at a time")
      .example("$0 lock job --wait 0 -- ./job.sh", "skip the job if it is already running")
      .epilog(
        `The command's environment has LOCKSTEP_NAME and LOCKSTEP_FENCE, and
LOCKSTEP_SEALED_FENCE if LOCKSTEP_SECRET is set; on etcd also ETCD_LOCK_KEY and
ETCD_LOCK_REV, as \`etcdctl lock\` sets them. Without a command, prints one JSON
line and holds the lock until interrupted.

Exit status: the command's own; 75 busy; 76 lost; 69 store unavailable;
64 usage; 126 or 127 if the command cannot be run.`,
      ),
  handler(args) {
    for (const option of ["ttl", "wait", "max-hold", "lock-delay"] as const)
      parseDuration(option, args[option]);
    return withStore(args, async (opened) => {
      process.exitCode = await runLocked(opened, args, command).catch((error) =>
        addHolder(opened, args, error),
      );
    });
  },
});

/** How long the query for the current holder may take, in milliseconds. */
const INSPECT_LIMIT = 1_000;

/** Rethrows the error, with the holder's name in its message if the store answers in time. */
async function addHolder(
  { locks }: AnyStore,
  { name, json }: LockArgs,
  error: Error,
): Promise<never> {
  if (!hasCode(error, "LOCK_TIMEOUT")) throw error;
  const { holder, expiresIn } = (await withTimeout(INSPECT_LIMIT, locks.inspect(name))) ?? {};
  if (json) print(JSON.stringify({ name, outcome: "busy", holder, expiresIn }));
  if (holder === undefined) throw error;
  const until =
    expiresIn === undefined ? "" : `, for ${Math.ceil(expiresIn)} ms more unless it renews`;
  error.message += `: held by ${holder}${until}`;
  throw error;
}

async function runLocked(
  opened: AnyStore,
  args: LockArgs,
  [file, ...words]: readonly string[],
): Promise<number> {
  const interruption = new AbortController();
  using _listening = onSignal((signal) => interruption.abort(signal));
  const held = await acquire(opened, args, interruption.signal);
  if (held === undefined) return exitStatusOfSignal(interruption.signal.reason);
  try {
    const environment = await environmentOf(held, opened);
    if (interruption.signal.aborted) return exitStatusOfSignal(interruption.signal.reason);
    if (file === undefined) return await holdUntilSignal(held, args);
    return await runUnderLock(held, [file, ...words], environment);
  } finally {
    const released = held[Symbol.asyncDispose]();
    // A lost lock needs no release, and its store may hang.
    await (held.signal.aborted ? cleanUp(released) : released);
  }
}

/** Waits for the lock. Resolves to undefined if a signal interrupted the wait. */
async function acquire(
  opened: AnyStore,
  args: LockArgs,
  signal: AbortSignal,
): Promise<Lock | undefined> {
  const noticeTimer = setTimeout(() => void showHolder(opened, args.name), 1_000);
  try {
    return await opened.locks.lock(args.name, {
      ttl: parseDuration("ttl", args.ttl),
      wait: parseDuration("wait", args.wait),
      maxHold: parseDuration("max-hold", args["max-hold"]),
      lockDelay: parseDuration("lock-delay", args["lock-delay"]),
      signal,
    });
  } catch (error) {
    if (!signal.aborted) throw error;
    return undefined;
  } finally {
    clearTimeout(noticeTimer);
  }
}

async function showHolder({ locks }: AnyStore, name: string): Promise<void> {
  const { holder } = await locks.inspect(name).catch(() => ({ holder: undefined }));
  note(`waiting for ${name}${holder ? `, held by ${holder}` : ""} …`);
}

async function environmentOf(held: Lock, opened: AnyStore): Promise<Record<string, string>> {
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
  { fence, signal }: Lock,
  opened: AnyStore,
): Promise<Record<string, string>> {
  const key = keyOfFence(fence);
  if (!opened.has("etcd") || key === undefined) return {};
  const { revision } = await opened.etcd.range(get(key, { keysOnly: true }), signal);
  return { ETCD_LOCK_KEY: key, ETCD_LOCK_REV: String(revision) };
}

/** Prints the lock and holds it until a signal arrives or the lock is lost. Returns the exit status. */
async function holdUntilSignal(held: Lock, { ttl }: LockArgs): Promise<number> {
  const { name, fence } = held;
  print(JSON.stringify({ name, fence: fence.toString(), ttlMillis: parseDuration("ttl", ttl) }));
  await nextSignal(held.signal);
  if (!held.signal.aborted) return 0;
  warn(String(held.signal.reason.message));
  return EXIT.lost;
}
