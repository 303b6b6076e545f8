import type { CommandModule } from "yargs";
import type { LockInfo } from "../../../core/lock/lock.ts";
import { jsonOption, type StoreArgs, storeOption } from "../options.ts";
import { withStoreToRead } from "../store.ts";
import { print } from "../terminal/output.ts";
import { table } from "../terminal/table.ts";

interface InspectArgs extends StoreArgs {
  readonly name: string;
  readonly json: boolean;
}

export const inspectCommand: CommandModule<unknown, InspectArgs> = {
  command: "inspect <name>",
  describe: "Show the holder of a lock",
  builder: (yargs) =>
    jsonOption(storeOption(yargs))
      .positional("name", { type: "string", demandOption: true, describe: "the lock's name" })
      .example("$0 inspect nightly-report", "show its holder and when it expires"),
  handler: (args) =>
    withStoreToRead(args, async ({ locks }) => {
      const info = await locks.inspect(args.name);
      if (args.json) print(JSON.stringify(info));
      else print(locksTable([info]));
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
    jsonOption(storeOption(yargs))
      .positional("prefix", {
        type: "string",
        default: "",
        describe: "only names with this prefix",
      })
      .example("$0 list sku/", "the locks of stock"),
  handler: (args) =>
    withStoreToRead(args, async ({ locks }) => {
      const infos = await locks.list(args.prefix);
      if (args.json) print(JSON.stringify(infos));
      else print(locksTable(infos));
    }),
};

export function locksTable(locks: readonly LockInfo[]): string {
  const rows = locks.map(({ name, holder, about, expiresIn, fence, waiters }) => [
    name,
    holder ?? "nobody",
    [about?.command, about?.run, about?.step].filter(Boolean).join(" · "),
    about?.since?.toISOString() ?? "",
    expiresIn === undefined ? "" : `${Math.ceil(expiresIn)} ms`,
    fence ?? "never locked",
    waiters,
  ]);
  const head = ["lock", "holder", "for", "since", "expires in", "last fence", "waiters"];
  return table(head, rows);
}
