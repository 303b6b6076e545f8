import type { CommandModule } from "yargs";
import { sealFence } from "../../core/lock/fence.ts";
import type { Lock } from "../../core/lock/lock.ts";
import { readConfig } from "../../infra/config.ts";
import type { Opened } from "../../infra/open.ts";
import { EXIT, statusOfSignal } from "./exit.ts";
import { note, print, type StoreArgs, toMillis, using, warn, withStore } from "./options.ts";
import { runUnder } from "./run-under.ts";
import { nextSignal, onSignal } from "./signals.ts";

interface LockArgs extends StoreArgs {
  readonly name: string;
  readonly ttl: string;
  readonly wait: string;
  readonly "max-hold": string;
  readonly "lock-delay": string;
}

/** `command` is what stands behind "--". */
export const lockCommand = (command: readonly string[]): CommandModule<unknown, LockArgs> => ({
  command: "lock <name>",
  describe: "Stand in line for a lock and run a command while holding it",
  builder: (yargs) =>
    withStore(yargs)
      .positional("name", { type: "string", demandOption: true, describe: "the lock's name" })
      .option("ttl", {
        type: "string",
        default: "10s",
        describe: "how long the store keeps the lock after it last heard from us",
      })
      .option("wait", {
        type: "string",
        default: "30s",
        describe: "how long to stand in line; 0 tries once",
      })
      .option("max-hold", {
        type: "string",
        default: "24h",
        describe: "the longest time to hold the lock",
      })
      .option("lock-delay", {
        type: "string",
        default: "0",
        describe: "how long nobody may take the lock after it was lost",
      })
      .usage("$0 lock <name> [options] [-- command ...]")
      .example("$0 lock nightly-report -- node report.js", "run one at a time, wherever started")
      .example("$0 lock job --wait 0 -- ./job.sh", "skip it when it runs already")
      .epilog(
        `The command finds LOCKSTEP_NAME and LOCKSTEP_FENCE in its environment, and
LOCKSTEP_SEALED_FENCE where LOCKSTEP_SECRET is set. Without a command, prints
one JSON line and holds the lock until interrupted.

Exit status: the command's own; 75 busy, 76 lost, 69 store unavailable,
64 usage, 126 and 127 when the command cannot be run.`,
      ),
  handler: (args) =>
    using(args, async (opened) => {
      process.exitCode = await lock(opened, args, command);
    }),
});

async function lock(
  opened: Opened,
  args: LockArgs,
  [file, ...words]: readonly string[],
): Promise<number> {
  const held = await standInLine(opened, args);
  if (typeof held === "string") return statusOfSignal(held);
  try {
    const environment = await environmentOf(held);
    if (file === undefined) return await hold(held, args);
    return await runUnder(held, [file, ...words], environment);
  } finally {
    await held[Symbol.asyncDispose]();
  }
}

/** The lock, or the signal that ended the wait for it. */
async function standInLine(opened: Opened, args: LockArgs): Promise<Lock | NodeJS.Signals> {
  const interruption = new AbortController();
  const signals = onSignal((signal) => interruption.abort(signal));
  const notice = setTimeout(() => void showHolder(opened, args.name), 1_000);
  try {
    return await opened.locks.lock(args.name, {
      ttl: toMillis("ttl", args.ttl),
      wait: toMillis("wait", args.wait),
      maxHold: toMillis("max-hold", args["max-hold"]),
      lockDelay: toMillis("lock-delay", args["lock-delay"]),
      signal: interruption.signal,
    });
  } catch (error) {
    if (!interruption.signal.aborted) throw error;
    return interruption.signal.reason as NodeJS.Signals;
  } finally {
    clearTimeout(notice);
    signals[Symbol.dispose]();
  }
}

async function showHolder({ locks }: Opened, name: string): Promise<void> {
  const { holder } = await locks.inspect(name).catch(() => ({ holder: undefined }));
  note(`waiting for ${name}${holder ? `, held by ${holder}` : ""} …`);
}

async function environmentOf(held: Lock): Promise<Record<string, string>> {
  const { secret } = readConfig();
  return {
    LOCKSTEP_NAME: held.name,
    LOCKSTEP_FENCE: held.fence.toString(),
    ...(secret && { LOCKSTEP_SEALED_FENCE: await sealFence(held.fence, secret) }),
  };
}

/** Without a command: says what is held, and holds it until interrupted. */
async function hold(held: Lock, { ttl }: LockArgs): Promise<number> {
  const { name, fence } = held;
  print(JSON.stringify({ name, fence: fence.toString(), ttlMillis: toMillis("ttl", ttl) }));
  await nextSignal(held.signal);
  if (!held.signal.aborted) return 0;
  warn(String(held.signal.reason.message));
  return EXIT.lost;
}
