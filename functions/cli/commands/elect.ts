import type { CommandModule } from "yargs";
import { follow, sleep } from "../../../core/lock/abort.ts";
import type { Election, Leader } from "../../../core/lock/election.ts";
import { hasCode } from "../../../core/lock/errors.ts";
import { backoff, retry } from "../../../core/lock/retry.ts";
import { type AnyStore, open, processLabel } from "../../../infra/open.ts";
import { escapeControls } from "../../display/escape-controls.ts";
import { formatJson } from "../../display/format-json.ts";
import { lockStoreOption, parseDuration, type StoreArgs } from "../options.ts";
import { HELD_HELP, holdAndRun, noticeHolder } from "../process/hold-and-run.ts";
import type { HeldLock } from "../process/run-while-held.ts";
import { listenForShutdown } from "../process/signals.ts";
import { withStore } from "../store.ts";
import { print } from "../terminal/output.ts";

interface ElectArgs extends StoreArgs {
  readonly name: string;
  readonly value: string;
  readonly ttl: string;
  readonly watch: boolean;
  readonly json: boolean;
}

/** `command` holds the words behind "--". */
export const electCommand = (command: readonly string[]): CommandModule<unknown, ElectArgs> => ({
  command: "elect <name>",
  describe: "Run a command as the leader of an election, or watch the leaders",
  builder: (yargs) =>
    lockStoreOption(yargs)
      .positional("name", { type: "string", demandOption: true, describe: "the election's name" })
      .option("value", {
        type: "string",
        default: processLabel(),
        defaultDescription: "HOST:PID",
        requiresArg: true,
        describe: "what the leader tells the others",
      })
      .option("ttl", {
        type: "string",
        requiresArg: true,
        default: "10s",
        describe: "how long a leader that is lost still leads",
      })
      .option("watch", {
        type: "boolean",
        default: false,
        describe: "print the leader and each change, without being a candidate",
      })
      .option("json", {
        type: "boolean",
        default: false,
        describe: "with --watch: print JSON lines",
      })
      .usage("$0 elect <name> [options] [-- command ...]")
      .example("$0 elect scheduler -- node scheduler.js", "run it on one machine at a time")
      .example("$0 elect scheduler --watch", "see who leads")
      .epilog(
        `Waits until it is elected, for as long as that takes. When the leadership is
lost, the command gets SIGTERM, and SIGKILL after 5 s; start it anew to be a
candidate again. The leader holds the lock of the same name: \`lockstep inspect\`
shows it, and \`lockstep release\` deposes it.

${HELD_HELP}
Without a command, prints one JSON line and leads until interrupted.

Exit status: the command's own; 76 leadership lost; 69 store unavailable;
64 usage; 126 or 127 if the command cannot be run.`,
      ),
  handler(args) {
    const ttl = parseDuration("ttl", args.ttl);
    if (args.watch && command.length > 0) throw new TypeError("--watch takes no command");
    if (args.json && !args.watch) throw new TypeError("--json needs --watch");
    if (args.watch) return withStore(args, (opened) => watch(opened, args), { create: false });
    return withStore(args, async (opened) => {
      const campaign = async (signal: AbortSignal) => {
        using _notice = noticeHolder("a candidate for", opened, args.name);
        return await untilSessionHolds(async () => {
          const election = await opened.elections.open(args.name, { ttl, signal });
          try {
            await election.campaign(args.value, { signal });
            return toHolding(election, args.name);
          } catch (error) {
            await election.close();
            throw error;
          }
        });
      };
      process.exitCode = await holdAndRun(opened, campaign, command, args);
    });
  },
});

/** Repeats work that has lost its session: nobody has led yet. */
async function untilSessionHolds<T>(work: () => Promise<T>): Promise<T> {
  return retry(work, (error, count) =>
    hasCode(error, "SESSION_EXPIRED") ? backoff(count) : undefined,
  );
}

function toHolding(election: Election, name: string): HeldLock {
  const { fence, signal } = election;
  if (!fence) throw signal.reason;
  const assertHeld = () => election.assertLeads();
  return { name, fence, signal, assertHeld, [Symbol.asyncDispose]: () => election.close() };
}

/** The pause before another look for a SQLite file that is missing. */
const LOOK_EVERY = 500;

/** Prints each leader, until a signal arrives. */
async function watch(opened: AnyStore, args: ElectArgs): Promise<void> {
  using shutdown = listenForShutdown();
  // The reader has gone, as that of `lockstep elect job --watch | head -1`: the line after its last one tells.
  const gone = new AbortController();
  process.stdout.once("error", () => gone.abort(new Error("nobody reads the leaders")));
  using either = follow(shutdown.requested, gone.signal);
  const { signal } = either;
  const show = printChanges(args.json);
  try {
    if (!isMissing(opened)) return await observe(opened, args.name, show, signal);
    for (;;) {
      show(undefined);
      await sleep(LOOK_EVERY, signal);
      await using store = await open(args.store, { create: false });
      if (!isMissing(store)) return await observe(store, args.name, show, signal);
    }
  } catch (error) {
    if (!signal.aborted) throw error;
  }
}

/** Whether the store is a SQLite file without tables. Such a file reads as empty, also once it has tables. */
function isMissing(opened: AnyStore): boolean {
  return opened.has("database") && opened.database.address === "sqlite::memory:";
}

type Show = (leader: Leader | undefined) => void;

async function observe(
  { elections }: AnyStore,
  name: string,
  show: Show,
  signal: AbortSignal,
): Promise<void> {
  await untilSessionHolds(async () => {
    await using election = await elections.open(name, { signal });
    // An observer waits for a store that is unavailable: the first read fails.
    await election.leader(signal);
    for await (const leader of election.observe({ signal })) show(leader);
  });
}

function printChanges(json: boolean): Show {
  let last = "";
  return (leader) => {
    const line = json ? formatJson(shown(leader)) : describe(leader);
    if (line !== last) print(line);
    last = line;
  };
}

function shown(leader: Leader | undefined) {
  if (!leader) return { leader: null };
  const { value, key, fence, since } = leader;
  return { leader: { value, key, fence, since } };
}

function describe(leader: Leader | undefined): string {
  if (!leader) return "nobody leads";
  const { value, fence, since } = leader;
  return `${escapeControls(value)} leads${since ? `, since ${since.toISOString()}` : ""}, fence ${fence}`;
}
