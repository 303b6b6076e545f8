import type { CommandModule } from "yargs";
import { hasCode } from "../../../core/lock/errors.ts";
import type { Lock } from "../../../core/lock/lock.ts";
import type { AnyStore } from "../../../infra/open.ts";
import { formatJson } from "../../display/format-json.ts";
import { withTimeout } from "../../display/with-timeout.ts";
import { lockStoreOption, parseDuration, type StoreArgs } from "../options.ts";
import { HELD_HELP, holdAndRun, noticeHolder } from "../process/hold-and-run.ts";
import { withStore } from "../store.ts";
import { print } from "../terminal/output.ts";

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
    lockStoreOption(yargs)
      .positional("name", { type: "string", demandOption: true, describe: "the lock's name" })
      .option("ttl", {
        type: "string",
        requiresArg: true,
        default: "10s",
        describe: "how long the store keeps the lock after its last renewal",
      })
      .option("wait", {
        type: "string",
        requiresArg: true,
        default: "30s",
        describe: "how long to wait for the lock; 0 tries once",
      })
      .option("max-hold", {
        type: "string",
        requiresArg: true,
        default: "24h",
        describe: "the longest time to hold the lock",
      })
      .option("lock-delay", {
        type: "string",
        requiresArg: true,
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
        `${HELD_HELP}
Without a command, prints one JSON line and holds the lock until interrupted.

Exit status: the command's own; 75 busy; 76 lost; 69 store unavailable;
64 usage; 126 or 127 if the command cannot be run.`,
      ),
  handler(args) {
    for (const option of ["ttl", "wait", "max-hold", "lock-delay"] as const)
      parseDuration(option, args[option]);
    return withStore(args, async (opened) => {
      const acquiring = (signal: AbortSignal) => acquire(opened, args, signal);
      process.exitCode = await holdAndRun(opened, acquiring, command, args).catch((error) =>
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
  if (json) print(formatJson({ name, outcome: "busy", holder, expiresIn }));
  if (holder === undefined) throw error;
  const until =
    expiresIn === undefined ? "" : `, for ${Math.ceil(expiresIn)} ms more unless it renews`;
  error.message += `: held by ${holder}${until}`;
  throw error;
}

/** Waits for the lock. Rejects if a signal interrupts the wait. */
async function acquire(opened: AnyStore, args: LockArgs, signal: AbortSignal): Promise<Lock> {
  using _notice = noticeHolder("waiting for", opened, args.name);
  return await opened.locks.lock(args.name, {
    ttl: parseDuration("ttl", args.ttl),
    wait: parseDuration("wait", args.wait),
    maxHold: parseDuration("max-hold", args["max-hold"]),
    lockDelay: parseDuration("lock-delay", args["lock-delay"]),
    signal,
  });
}
