#!/usr/bin/env node
// Must be the first import:
import "./process/startup.ts";
import { createRequire } from "node:module";
import yargs, { type ArgumentsCamelCase, type CommandModule } from "yargs";
import { hideBin } from "yargs/helpers";
import { describeError, EXIT, exitStatusOf } from "./exit-status.ts";
import { timeLeftToExit } from "./store.ts";
import { warn } from "./terminal/output.ts";

const { version } = createRequire(import.meta.url)("lockstep/package.json");

const words = hideBin(process.argv);
const separator = words.indexOf("--");

/** The words for lockstep itself. */
const ownWords = separator < 0 ? words : words.slice(0, separator);

/** The words behind the first "--", unparsed: numbers, empty words and options belong to the command. */
const command = separator < 0 ? [] : words.slice(separator + 1);

// biome-ignore lint/suspicious/noExplicitAny: yargs infers the arguments of each command from its builder
type AnyCommand = CommandModule<any, any>;

/** The commands in the order of the help. */
const COMMANDS = new Map<string, () => Promise<AnyCommand>>(
  Object.entries({
    lock: async () => (await import("./commands/lock.ts")).lockCommand(command),
    inspect: async () => (await import("./commands/inspect.ts")).inspectCommand,
    list: async () => (await import("./commands/inspect.ts")).listCommand,
    migrate: async () => (await import("./commands/migrate.ts")).migrateCommand,
    "raise-generation": async () => (await import("./commands/migrate.ts")).generationCommand,
    inventory: async () => (await import("./commands/inventory.ts")).inventoryCommand,
    init: async () => (await import("./commands/init.ts")).initCommand(version),
    dev: async () => (await import("./commands/dev.ts")).devCommand,
    worker: async () => (await import("./commands/worker.ts")).workerCommand,
    run: async () => (await import("./commands/run.ts")).runCommand,
    runs: async () => (await import("./commands/runs.ts")).runsCommand,
    orders: async () => (await import("./commands/orders.ts")).ordersCommand,
    oversell: async () => (await import("./commands/oversell.ts")).oversellCommand,
    servers: async () => (await import("./commands/servers.ts")).serversCommand,
  }),
);

/** Loads the command that comes first. Loads all for the help, an unknown command, and options before the command. */
async function loadCommands(): Promise<AnyCommand[]> {
  const named = COMMANDS.get(ownWords[0] ?? "");
  return Promise.all((named ? [named] : [...COMMANDS.values()]).map((load) => load()));
}

/** Reduces a message of yargs to one line. "Did you mean lock?" gets the words that yargs has read. */
function describeUsageError(message: string): string {
  const [suggestion] = /(?<=^Did you mean ).*(?=\?$)/.exec(message) ?? [];
  if (suggestion === undefined) return message.replaceAll(/\n\s*/g, " ");
  const read = ownWords.filter((word) => !word.startsWith("-")).slice(0, 2);
  return `"${read.join(" ")}" is no command: did you mean ${suggestion}?`;
}

/** Options that may be repeated. */
const REPEATABLE = ["_", "strategy"];

/** Throws a TypeError for errors that yargs accepts. */
function checkUsage(args: ArgumentsCamelCase): void {
  if (command.length > 0 && args._[0] !== "lock") {
    throw new TypeError('only "lockstep lock" takes a command after "--"');
  }
  for (const [option, value] of Object.entries(args)) {
    if (!Array.isArray(value) || REPEATABLE.includes(option)) continue;
    throw new TypeError(`--${option} was given more than once`);
  }
}

// A reader that closes the pipe early, as in `lockstep list | head -1`, is no error.
for (const stream of [process.stdout, process.stderr]) {
  stream.on("error", (error: NodeJS.ErrnoException) => {
    if (error.code !== "EPIPE") throw error;
  });
}

try {
  await yargs(ownWords)
    .scriptName("lockstep")
    .version(version)
    .usage("$0 <command>\n\nLocks with fences, steps that resume, and stock that never oversells.")
    .command(await loadCommands())
    .demandCommand(1, "which command?")
    .strict()
    .recommendCommands()
    .check((args) => {
      checkUsage(args);
      return true;
    })
    .example("$0 lock nightly-report -- node report.js", "run one instance at a time")
    .fail((message, error) => {
      throw error ?? new TypeError(`${describeUsageError(message)} (see lockstep --help)`);
    })
    .parseAsync();
} catch (error) {
  warn(describeError(error));
  process.exitCode = exitStatusOf(error) || EXIT.software;
}

// The command is over: connections to a server that hangs must not keep the process running.
setTimeout(() => process.exit(), timeLeftToExit()).unref();
