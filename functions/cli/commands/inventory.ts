import { randomUUID } from "node:crypto";
import type { Argv, CommandModule } from "yargs";
import { type Inventory, type StockResult, unknownSku } from "../../../core/inventory/inventory.ts";
import { openFence } from "../../../core/lock/fence.ts";
import { readConfig } from "../../../infra/config.ts";
import { formatJson } from "../../display/format-json.ts";
import { EXIT } from "../exit-status.ts";
import { jsonOption, parseInteger, type StoreArgs, storeOption } from "../options.ts";
import { withStore, withStoreToRead } from "../store.ts";
import { print } from "../terminal/output.ts";
import { table } from "../terminal/table.ts";

interface SkuArgs extends StoreArgs {
  readonly sku: string;
}

interface ChangeArgs extends SkuArgs {
  readonly quantity: string;
  readonly "operation-id": string;
  readonly fence: string | undefined;
}

export const inventoryCommand: CommandModule = {
  command: "inventory <action>",
  describe: "Show or change stock",
  builder: (yargs) =>
    yargs
      .command(listCommand)
      .command(getCommand)
      .command(historyCommand)
      .command(changeCommand("set", "Set the number of units on hand"))
      .command(changeCommand("restock", "Add units"))
      .command(changeCommand("decrement", "Sell units; exit status 1 if sold out"))
      .demandCommand(1)
      .example("$0 inventory set teapot 10", "set the stock to ten teapots")
      .example("$0 inventory decrement teapot 1 --operation-id order-7", "sell one teapot, once"),
  handler: () => {},
};

const listCommand: CommandModule<
  unknown,
  StoreArgs & {
    readonly prefix: string;
    readonly after: string | undefined;
    readonly limit: string;
    readonly json: boolean;
  }
> = {
  command: "list [prefix]",
  describe: "List the stock of articles",
  builder: (yargs) =>
    jsonOption(storeOption(yargs))
      .positional("prefix", {
        type: "string",
        default: "",
        describe: "only articles with this prefix",
      })
      .option("limit", {
        type: "string",
        requiresArg: true,
        default: "100",
        describe: "the largest number of articles",
      })
      .option("after", {
        type: "string",
        requiresArg: true,
        describe: "the last article of the page before",
      })
      .example("$0 inventory list tea", "the stock of teapots and teacups"),
  handler: (args) =>
    withStoreToRead(args, async ({ inventory }) => {
      const { prefix, after } = args;
      const limit = parseInteger("--limit", args.limit);
      const levels = await inventory.list({ prefix, limit, ...(after !== undefined && { after }) });
      if (args.json) return print(formatJson(levels));
      const rows = levels.map(({ sku, ...units }) => [
        sku,
        ...[units.onHand, units.reserved, units.sold, units.supplied],
      ]);
      print(table(["sku", "on hand", "reserved", "sold", "supplied"], rows));
    }),
};

const getCommand: CommandModule<unknown, SkuArgs> = {
  command: "get <sku>",
  describe: "Show the stock of an article",
  builder: (yargs) =>
    skuPositional(yargs).example("$0 inventory get teapot", "show how many teapots are left"),
  handler: (args) =>
    withStoreToRead(args, async (opened) => {
      const stock = await opened.inventory.get(args.sku);
      if (stock === undefined) throw unknownSku(args.sku);
      print(formatJson(stock));
    }),
};

const historyCommand: CommandModule<
  unknown,
  SkuArgs & { readonly limit: string; readonly json: boolean }
> = {
  command: "history <sku>",
  describe: "Show the ledger of an article, newest entry first",
  builder: (yargs) =>
    jsonOption(skuPositional(yargs))
      .option("limit", {
        type: "string",
        requiresArg: true,
        default: "20",
        describe: "the largest number of entries",
      })
      .example("$0 inventory history teapot", "show all changes of the teapots"),
  handler: (args) =>
    withStoreToRead(args, async (opened) => {
      const entries = await opened.inventory.history(args.sku, {
        limit: parseInteger("--limit", args.limit),
      });
      if (args.json) return print(formatJson(entries));
      const rows = entries.map((entry) => [
        entry.seq,
        entry.at.toISOString(),
        entry.kind,
        entry.quantity,
        entry.outcome,
        entry.remaining,
        entry.operationId ?? entry.reservation ?? "",
        entry.fence ?? "",
      ]);
      const head = ["seq", "at", "kind", "quantity", "outcome", "remaining", "operation", "fence"];
      print(table(head, rows));
    }),
};

type Action = "set" | "restock" | "decrement";

function changeCommand(action: Action, describe: string): CommandModule<unknown, ChangeArgs> {
  const isQuantityOptional = action === "decrement";
  return {
    command: `${action} <sku> ${isQuantityOptional ? "[quantity]" : "<quantity>"}`,
    describe,
    builder: (yargs) =>
      skuPositional(yargs)
        .positional("quantity", {
          type: "string",
          describe: "the number of units",
          ...(isQuantityOptional ? { default: "1" } : { demandOption: true }),
        })
        .option("operation-id", {
          type: "string",
          requiresArg: true,
          default: randomUUID(),
          defaultDescription: "a random id",
          describe: "changes with the same id are applied once",
        })
        .option("fence", {
          type: "string",
          requiresArg: true,
          describe: "the LOCKSTEP_SEALED_FENCE of the lock sku/<sku>; needs LOCKSTEP_SECRET",
        })
        .example(`$0 inventory ${action} teapot 3 --operation-id order-7`, "safe to repeat"),
    async handler(args) {
      const quantity = parseInteger("quantity", args.quantity);
      await withStore(args, async (opened) => {
        const answer = await change(opened.inventory, action, quantity, args);
        print(formatJson(answer));
        if (answer.outcome !== "applied") process.exitCode = EXIT.no;
      });
    },
  };
}

async function change(
  inventory: Inventory,
  action: Action,
  quantity: number,
  args: ChangeArgs,
): Promise<StockResult> {
  const { sku, "operation-id": operationId } = args;
  const fence = args.fence === undefined ? undefined : await openFence(args.fence, secret());
  return inventory[action]({ sku, quantity, operationId, fence });
}

function secret(): string {
  const config = readConfig();
  if (config.secret === undefined) throw new TypeError("--fence needs LOCKSTEP_SECRET");
  return config.secret;
}

function skuPositional<T>(yargs: Argv<T>) {
  return storeOption(yargs).positional("sku", {
    type: "string",
    demandOption: true,
    describe: "the article's sku",
  });
}
