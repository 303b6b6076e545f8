import type { CommandModule } from "yargs";
import type { HolderInfo, LockInfo } from "../../../core/lock/lock.ts";
import { formatDuration } from "../../display/format-duration.ts";
import { formatJson } from "../../display/format-json.ts";
import { jsonOption, lockStoreOption, type StoreArgs } from "../options.ts";
import { withStoreToRead } from "../store.ts";
import { print } from "../terminal/output.ts";
import { table } from "../terminal/table.ts";

interface InspectArgs extends StoreArgs {
  readonly name: string;
  readonly json: boolean;
}

export const inspectCommand: CommandModule<unknown, InspectArgs> = {
  command: "inspect <name>",
  describe: "Show the holder of a lock, and its waiters",
  builder: (yargs) =>
    jsonOption(lockStoreOption(yargs))
      .positional("name", { type: "string", demandOption: true, describe: "the lock's name" })
      .example("$0 inspect nightly-report", "show its holder and when it expires"),
  handler: (args) =>
    withStoreToRead(args, async ({ locks }) => {
      const info = await locks.inspect(args.name);
      if (args.json) print(formatJson(info));
      else print(drawLock(info));
    }),
};

interface ListArgs extends StoreArgs {
  readonly prefix: string;
  readonly json: boolean;
}

export const listCommand: CommandModule<unknown, ListArgs> = {
  command: "list [prefix]",
  describe: "List held locks",
  builder: (yargs) =>
    jsonOption(lockStoreOption(yargs))
      .positional("prefix", {
        type: "string",
        default: "",
        describe: "only names with this prefix",
      })
      .example("$0 list sku/", "the locks of stock"),
  handler: (args) =>
    withStoreToRead(args, async ({ locks }) => {
      const infos = await locks.list(args.prefix);
      if (args.json) print(formatJson(infos));
      else print(locksTable(infos));
    }),
};

/** Draws a lock, with its queue at the store, if it has one. */
export function drawLock(info: LockInfo): string {
  return [locksTable([info]), ...queueOf(info)].join("\n");
}

function queueOf({ waiters, queue = [] }: LockInfo): readonly string[] {
  if (queue.length === 0) return [];
  const rows = queue.map(({ id, since, ...about }, i) => [
    i + 1,
    id,
    workOf(about),
    since === undefined ? "" : formatDuration(Math.max(0, Date.now() - since.getTime())),
  ]);
  const title =
    waiters > queue.length ? `the first ${queue.length} of ${waiters} waiters:` : "the waiters:";
  return ["", title, table(["place", "waiter", "for", "has waited"], rows)];
}

/** Returns the work of a holder. */
export function workOf(about: HolderInfo | undefined): string {
  return [about?.value, about?.command, about?.run, about?.step].filter(Boolean).join(" · ");
}

function locksTable(locks: readonly LockInfo[]): string {
  const rows = locks.map(({ name, holder, about, expiresIn, fence, waiters }) => [
    name,
    holder ?? "nobody",
    workOf(about),
    about?.since?.toISOString() ?? "",
    expiresIn === undefined ? "" : `${Math.ceil(expiresIn)} ms`,
    fence ?? "none",
    waiters,
  ]);
  const head = ["lock", "holder", "for", "since", "expires in", "last fence", "waiters"];
  return table(head, rows);
}
