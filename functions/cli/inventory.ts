import { randomUUID } from "node:crypto";
import type { Argv, CommandModule } from "yargs";
import { type Answer, type Inventory, UnknownSkuError } from "../../core/inventory/inventory.ts";
import { openFence } from "../../core/lock/fence.ts";
import { readConfig } from "../../infra/config.ts";
import type { Opened } from "../../infra/open.ts";
import { EXIT } from "./exit.ts";
import { print, type StoreArgs, toWhole, using, withStore } from "./options.ts";
import { table } from "./table.ts";

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
  describe: "Look at stock, or change it",
  builder: (yargs) =>
    yargs
      .command(getCommand)
      .command(historyCommand)
      .command(changeCommand("set", "Make the units on hand exactly this many"))
      .command(changeCommand("restock", "Add units"))
      .command(changeCommand("decrement", "Sell units; exit status 1 when sold out"))
      .demandCommand(1)
      .example("$0 inventory set teapot 10", "ten teapots")
      .example("$0 inventory decrement teapot 1 --operation-id order-7", "sell one, once"),
  handler: () => {},
};

const getCommand: CommandModule<unknown, SkuArgs> = {
  command: "get <sku>",
  describe: "Show the stock of a sku",
  builder: (yargs) => withSku(yargs).example("$0 inventory get teapot", "how many are left"),
  handler: (args) =>
    using(args, async (opened) => {
      const stock = await inventoryOf(opened).get(args.sku);
      if (stock === undefined) throw new UnknownSkuError(args.sku);
      print(JSON.stringify(stock));
    }),
};

const historyCommand: CommandModule<unknown, SkuArgs & { readonly limit: number }> = {
  command: "history <sku>",
  describe: "Show the sku's ledger, newest first",
  builder: (yargs) =>
    withSku(yargs)
      .option("limit", { type: "number", default: 20, describe: "how many entries" })
      .example("$0 inventory history teapot", "what happened to the teapots"),
  handler: (args) =>
    using(args, async (opened) => {
      const entries = await inventoryOf(opened).history(args.sku, { limit: args.limit });
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
  const mayOmit = action === "decrement";
  return {
    command: `${action} <sku> ${mayOmit ? "[quantity]" : "<quantity>"}`,
    describe,
    builder: (yargs) =>
      withSku(yargs)
        .positional("quantity", {
          type: "string",
          describe: "how many units",
          ...(mayOmit ? { default: "1" } : { demandOption: true }),
        })
        .option("operation-id", {
          type: "string",
          default: randomUUID(),
          defaultDescription: "a random one",
          describe: "the same id is applied once, however often it comes",
        })
        .option("fence", {
          type: "string",
          describe: "LOCKSTEP_SEALED_FENCE of the lock sku/<sku>; needs LOCKSTEP_SECRET",
        })
        .example(`$0 inventory ${action} teapot 3 --operation-id order-7`, "once, however often"),
    async handler(args) {
      const quantity = toWhole("quantity", args.quantity);
      await using(args, async (opened) => {
        const answer = await change(inventoryOf(opened), action, quantity, args);
        print(JSON.stringify(answer));
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
): Promise<Answer> {
  const { sku, "operation-id": operationId } = args;
  const fence = args.fence === undefined ? undefined : await openFence(args.fence, secret());
  return inventory[action]({ sku, quantity, operationId, fence });
}

function secret(): string {
  const config = readConfig();
  if (config.secret === undefined) throw new TypeError("--fence needs LOCKSTEP_SECRET");
  return config.secret;
}

function withSku<T>(yargs: Argv<T>) {
  return withStore(yargs).positional("sku", {
    type: "string",
    demandOption: true,
    describe: "the article",
  });
}

function inventoryOf({ inventory }: Opened): Inventory {
  if (!inventory) throw new TypeError("this store keeps no stock");
  return inventory;
}
