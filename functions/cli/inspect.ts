import type { CommandModule } from "yargs";
import type { LockInfo } from "../../core/lock/lock.ts";
import { print, type StoreArgs, using, withStore } from "./options.ts";
import { table } from "./table.ts";

interface InspectArgs extends StoreArgs {
  readonly name: string;
  readonly json: boolean;
}

export const inspectCommand: CommandModule<unknown, InspectArgs> = {
  command: "inspect <name>",
  describe: "Show who holds a lock",
  builder: (yargs) =>
    withStore(yargs)
      .positional("name", { type: "string", demandOption: true, describe: "the lock's name" })
      .option("json", { type: "boolean", default: false, describe: "print one JSON document" })
      .example("$0 inspect nightly-report", "who holds it, and for how much longer"),
  handler: (args) =>
    using(args, async ({ locks }) => show([await locks.inspect(args.name)], args.json, "one")),
};

interface ListArgs extends StoreArgs {
  readonly prefix: string;
  readonly json: boolean;
}

export const listCommand: CommandModule<unknown, ListArgs> = {
  command: "list [prefix]",
  describe: "List the locks that are held",
  builder: (yargs) =>
    withStore(yargs)
      .positional("prefix", { type: "string", default: "", describe: "how their names start" })
      .option("json", { type: "boolean", default: false, describe: "print one JSON document" })
      .example("$0 list sku/", "the locks on stock"),
  handler: (args) =>
    using(args, async ({ locks }) => show(await locks.list(args.prefix), args.json, "many")),
};

function show(locks: readonly LockInfo[], json: boolean, count: "one" | "many"): void {
  if (json) {
    print(JSON.stringify(count === "one" ? locks[0] : locks));
    return;
  }
  const rows = locks.map(({ name, holder, expiresIn, fence }) => [
    name,
    holder ?? "nobody",
    expiresIn === undefined ? "" : `${Math.ceil(expiresIn)} ms`,
    fence ?? "never locked",
  ]);
  print(table(["lock", "holder", "expires in", "last fence"], rows));
}
