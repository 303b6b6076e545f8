import { createRequire } from "node:module";
import yargs, { type ArgumentsCamelCase, type Argv, type CommandModule } from "yargs";
import { describeError, EXIT, exitStatusOf } from "./exit-status.ts";
import { warn } from "./terminal/output.ts";

const { version } = createRequire(import.meta.url)("lockstep/package.json");

// biome-ignore lint/suspicious/noExplicitAny: yargs infers the arguments of each command from its builder
type AnyCommand = CommandModule<any, any>;

/** The words of a command line, divided at the first "--". */
interface Words {
  /** The words for lockstep itself. */
  readonly own: readonly string[];

  /** The words behind the "--", unparsed: numbers, empty words and options belong to the command. */
  readonly command: readonly string[];

  readonly hasSeparator: boolean;
}

/** Executes a command line. Prints to the standard streams, and sets the exit status of the process. */
export async function executeCommand(words: readonly string[]): Promise<void> {
  const separator = words.indexOf("--");
  const hasSeparator = separator >= 0;
  const [own, command] = hasSeparator
    ? [words.slice(0, separator), words.slice(separator + 1)]
    : [words, []];
  try {
    await parse({ own, command, hasSeparator });
  } catch (error) {
    warn(describeError(error));
    process.exitCode = exitStatusOf(error) || EXIT.software;
  }
}

async function parse(words: Words): Promise<void> {
  await yargs([...words.own])
    // The descriptions are in English: yargs would translate its own words around them.
    .locale("en")
    .exitProcess(false)
    .scriptName("lockstep")
    .version(version)
    .usage("$0 <command>\n\nLocks with fences, steps that resume, and stock that never oversells.")
    .command(await loadCommands(words))
    .demandCommand(1, "which command?")
    .strict()
    .recommendCommands()
    .completion("completion", "Print a script that completes commands in bash and zsh")
    .check((args) => {
      checkUsage(args, words);
      return true;
    })
    .example("$0 lock nightly-report -- node report.js", "run one instance at a time")
    .fail((message, error, command) => {
      const usage = usageOf(command);
      const problem = error
        ? describeValueMissing(error)
        : (describeMissing(message, usage) ?? describeUsageError(message, words));
      throw new TypeError(`${problem} (see ${usage.replace(/ [<[].*/, "")} --help)`);
    })
    .parseAsync();
}

/** The commands in the order of the help. */
function commands({ command }: Words): ReadonlyMap<string, () => Promise<AnyCommand>> {
  return new Map<string, () => Promise<AnyCommand>>(
    Object.entries({
      lock: async () => (await import("./commands/lock.ts")).lockCommand(command),
      elect: async () => (await import("./commands/elect.ts")).electCommand(command),
      inspect: async () => (await import("./commands/inspect.ts")).inspectCommand,
      list: async () => (await import("./commands/inspect.ts")).listCommand,
      release: async () => (await import("./commands/release.ts")).releaseCommand,
      top: async () => (await import("./commands/top.ts")).topCommand,
      migrate: async () => (await import("./commands/migrate.ts")).migrateCommand,
      "raise-generation": async () => (await import("./commands/migrate.ts")).generationCommand,
      doctor: async () => (await import("./commands/doctor.ts")).doctorCommand,
      inventory: async () => (await import("./commands/inventory.ts")).inventoryCommand,
      init: async () => (await import("./commands/init.ts")).initCommand(version),
      console: async () => (await import("./commands/console.ts")).consoleCommand,
      dev: async () => (await import("./commands/dev.ts")).devCommand,
      worker: async () => (await import("./commands/worker.ts")).workerCommand,
      run: async () => (await import("./commands/run.ts")).runCommand,
      runs: async () => (await import("./commands/runs.ts")).runsCommand,
      orders: async () => (await import("./commands/orders.ts")).ordersCommand,
      oversell: async () => (await import("./commands/oversell.ts")).oversellCommand(version),
      servers: async () => (await import("./commands/servers.ts")).serversCommand,
    }),
  );
}

/** Loads the command that comes first. Loads all for the help, an unknown command, and options before the command. */
async function loadCommands(words: Words): Promise<AnyCommand[]> {
  const all = commands(words);
  const named = all.get(words.own[0] ?? "");
  return Promise.all((named ? [named] : [...all.values()]).map((load) => load()));
}

/** The commands that run another one. */
const RUNNING = ["lock", "elect"];

/** Returns the first line of a command's help, such as "lockstep inventory get <sku>". */
function usageOf(command: Argv): string {
  let help = "";
  command.showHelp((text) => {
    help = text;
  });
  return help.split("\n", 1)[0] ?? "";
}

/** Names the arguments that are missing. Undefined for another message of yargs. */
function describeMissing(message: string, usage: string): string | undefined {
  const [, given] = /^Not enough non-option arguments: got (\d+)/.exec(message) ?? [];
  if (given === undefined) return undefined;
  const missing = (usage.match(/<[^>]+>/g) ?? []).slice(Number(given));
  return `${missing.join(" and ")} ${missing.length > 1 ? "are" : "is"} missing`;
}

/** Names the option whose value is missing. Throws any other error. */
function describeValueMissing(error: Error): string {
  const [, option] = /^Not enough arguments following: (.+)$/.exec(error.message) ?? [];
  if (option === undefined) throw error;
  return `--${option} needs a value`;
}

/** Reduces a message of yargs to one line. "Did you mean lock?" gets the words that yargs has read. */
function describeUsageError(message: string, { own, hasSeparator }: Words): string {
  const [suggestion] = /(?<=^Did you mean ).*(?=\?$)/.exec(message) ?? [];
  if (suggestion === undefined) {
    const line = message.replaceAll(/\n\s*/g, " ");
    if (!/^Unknown argument/.test(line)) return line;
    const isCommand = RUNNING.includes(own[0] ?? "") && !hasSeparator;
    return isCommand ? `${line}; a command follows a "--"` : line;
  }
  const read = own.filter((word) => !word.startsWith("-")).slice(0, 2);
  return `"${read.join(" ")}" is no command: did you mean ${suggestion}?`;
}

/** Arguments that may be repeated. */
const REPEATABLE = ["_", "ids", "strategy", "compare", "queue"];

/** Throws a TypeError for errors that yargs accepts. */
function checkUsage(args: ArgumentsCamelCase, { command, hasSeparator }: Words): void {
  if (hasSeparator && command.length === 0) throw new TypeError('no command follows the "--"');
  if (command.length > 0 && !RUNNING.includes(String(args._[0]))) {
    throw new TypeError('only "lockstep lock" and "lockstep elect" take a command after "--"');
  }
  for (const [option, value] of Object.entries(args)) {
    if (!Array.isArray(value) || REPEATABLE.includes(option)) continue;
    throw new TypeError(`--${option} was given more than once`);
  }
}
