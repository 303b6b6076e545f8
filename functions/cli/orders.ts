import { readFile } from "node:fs/promises";
import { text } from "node:stream/consumers";
import { SingleBar } from "cli-progress";
import type { CommandModule } from "yargs";
import { sqlInventory } from "../../core/inventory/sql.ts";
import { checkSpan, checkWhole } from "../../core/lock/checks.ts";
import { readConfig } from "../../infra/config.ts";
import { type Opened, open } from "../../infra/open.ts";
import { fulfil } from "../batch/fulfil.ts";
import { addOrders, checkOrder, countOrders, type PlacedOrder } from "../batch/orders.ts";
import { statusOfSignal } from "./exit.ts";
import { parseJson } from "./json.ts";
import {
  databaseOf,
  print,
  type StoreArgs,
  toMillis,
  toWhole,
  using,
  withStore,
} from "./options.ts";
import { onTwoSignals } from "./signals.ts";

export const ordersCommand: CommandModule = {
  command: "orders <action>",
  describe: "Fulfil orders from a queue, a batch for each article",
  builder: (yargs) =>
    yargs
      .command(addCommand)
      .command(fulfilCommand)
      .command(countCommand)
      .demandCommand(1)
      .example("$0 orders add orders.jsonl", "put orders into the queue")
      .example("$0 orders fulfil", "answer all of them; start as many as you like"),
  handler: () => {},
};

interface AddArgs extends StoreArgs {
  readonly file: string;
}

const addCommand: CommandModule<unknown, AddArgs> = {
  command: "add [file]",
  describe: "Put orders into the queue; those that are there already change nothing",
  builder: (yargs) =>
    withStore(yargs)
      .positional("file", {
        type: "string",
        default: "-",
        defaultDescription: "standard input",
        describe: "a JSON object a line: orderId, sku, quantity",
      })
      .example("$0 orders add orders.jsonl", '{"orderId":"7","sku":"teapot","quantity":1} …'),
  async handler(args) {
    const orders = parseOrders(await readAll(args.file));
    await using(args, async (opened) => {
      await addOrders(databaseOf(opened), orders);
      print(`${orders.length} orders`);
    });
  },
};

interface FulfilArgs extends StoreArgs {
  readonly locks: string | undefined;
  readonly concurrency: string;
  readonly group: string;
  readonly ttl: string;
  readonly follow: boolean;
}

const fulfilCommand: CommandModule<unknown, FulfilArgs> = {
  command: "fulfil",
  describe: "Answer the open orders: fulfilled or sold out",
  builder: (yargs) =>
    withStore(yargs)
      .option("locks", {
        type: "string",
        describe: "the store of the articles' locks, if another one; also from LOCKSTEP_LOCKS",
        default: readConfig().locks,
        defaultDescription: "the store",
        requiresArg: true,
      })
      .option("concurrency", { type: "string", default: "4", describe: "articles at a time" })
      .option("group", {
        type: "string",
        default: "500",
        describe: "how many orders share a lock and a transaction",
      })
      .option("ttl", {
        type: "string",
        default: "10s",
        describe: "how long the lock of a killed process stays in the way",
      })
      .option("follow", {
        type: "boolean",
        default: false,
        describe: "wait for more orders instead of ending",
      })
      .example("$0 orders fulfil --store mysql://shop@db/shop", "in several processes at once")
      .epilog(
        `Orders for one article are answered together: one lock, one transaction. While
somebody else is at an article, another one comes first. Whenever it is
killed, each order has its answer and its units, or neither.

Ends on TERM, INT and HUP when the groups under way are done.`,
      ),
  async handler(args) {
    const concurrency = toWhole("--concurrency", args.concurrency);
    const group = toWhole("--group", args.group);
    checkWhole("--concurrency", concurrency, 1, 100);
    checkWhole("--group", group, 1, 1_000);
    const ttl = toMillis("ttl", args.ttl);
    checkSpan("--ttl", ttl, 1);
    const apart = args.locks === undefined ? undefined : await open(args.locks);
    try {
      await using(args, (opened) =>
        fulfilAll(opened, apart ?? opened, { concurrency, group, ttl, follow: args.follow }),
      );
    } finally {
      await apart?.close();
    }
  },
};

interface Extent {
  readonly concurrency: number;
  readonly group: number;
  readonly ttl: number;
  readonly follow: boolean;
}

async function fulfilAll(opened: Opened, { locks }: Opened, extent: Extent): Promise<void> {
  const database = databaseOf(opened);
  using told = onTwoSignals();
  using progress = showProgress();
  const startedAt = performance.now();
  const { groups, passedOver, ...answers } = await fulfil({
    ...extent,
    ...{ locks, database, inventory: sqlInventory(database) },
    signal: told.first,
    abort: told.second,
    onLook: (count) => progress.update(count),
  });
  const seconds = (performance.now() - startedAt) / 1_000;
  const orders = Object.values(answers).reduce((sum, count) => sum + count, 0);
  const ordersPerSec = Math.round(orders / seconds);
  print(JSON.stringify({ ...answers, groups, passedOver, seconds: round(seconds), ordersPerSec }));
  if (told.second.aborted && told.name) process.exitCode = statusOfSignal(told.name);
}

/** On a terminal: of the most orders that were seen open, how many are not any more. */
function showProgress() {
  const format = "{bar} {percentage}% | {value} of {total} orders";
  const bar = new SingleBar({
    format,
    noTTYOutput: false,
    clearOnComplete: true,
    hideCursor: true,
  });
  let most = 0;
  bar.start(0, 0);
  return {
    update(open: number) {
      most = Math.max(most, open);
      bar.setTotal(most);
      bar.update(most - open);
    },
    [Symbol.dispose]: () => bar.stop(),
  };
}

const countCommand: CommandModule<unknown, StoreArgs> = {
  command: "count",
  describe: "Count the orders by their answers",
  builder: (yargs) => withStore(yargs).example("$0 orders count", "how far it is"),
  handler: (args) =>
    using(args, async (opened) => print(JSON.stringify(await countOrders(databaseOf(opened))))),
};

/** Throws a TypeError or RangeError that names the line. */
function parseOrders(lines: string): readonly PlacedOrder[] {
  return lines.split("\n").flatMap((line, i) => {
    if (line.trim() === "") return [];
    const what = `line ${i + 1}`;
    const order = parseJson(what, line) as PlacedOrder | null;
    if (order === null || typeof order !== "object") {
      throw new TypeError(`${what} must be a JSON object, not ${line.slice(0, 40)}`);
    }
    try {
      checkOrder(order);
    } catch (error) {
      throw new TypeError(`${what}: ${(error as Error).message}`);
    }
    return [order];
  });
}

async function readAll(file: string): Promise<string> {
  if (file === "-") return text(process.stdin);
  try {
    return await readFile(file, "utf8");
  } catch (error) {
    throw new TypeError(`the orders cannot be read: ${(error as Error).message}`);
  }
}

function round(seconds: number): number {
  return Math.round(seconds * 100) / 100;
}
