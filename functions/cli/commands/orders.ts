import { readFile } from "node:fs/promises";
import { text } from "node:stream/consumers";
import { SingleBar } from "cli-progress";
import type { CommandModule } from "yargs";
import { checkSpan, checkWhole } from "../../../core/lock/checks.ts";
import { sqlInventory } from "../../../core/stores/sql/inventory/index.ts";
import type { AnyStore } from "../../../infra/open.ts";
import { fulfil } from "../../batch/fulfil.ts";
import { addOrders, checkOrder, countOrders, type StockOrder } from "../../batch/orders.ts";
import { formatJson, parseJson } from "../../display/format-json.ts";
import { exitStatusOfSignal } from "../exit-status.ts";
import {
  locksOption,
  parseDuration,
  parseInteger,
  type StoreArgs,
  storeOption,
} from "../options.ts";
import { listenForShutdown } from "../process/signals.ts";
import { withLocks, withStore, withStoreToRead } from "../store.ts";
import { print } from "../terminal/output.ts";

export const ordersCommand: CommandModule = {
  command: "orders <action>",
  describe: "Fulfil queued orders in batches, one article per batch",
  builder: (yargs) =>
    yargs
      .command(addCommand)
      .command(fulfilCommand)
      .command(countCommand)
      .demandCommand(1)
      .example("$0 orders add orders.jsonl", "add orders to the queue")
      .example("$0 orders fulfil", "answer all open orders; run any number of processes"),
  handler: () => {},
};

interface AddArgs extends StoreArgs {
  readonly file: string;
}

const addCommand: CommandModule<unknown, AddArgs> = {
  command: "add [file]",
  describe: "Add orders to the queue; orders that are already there are not changed",
  builder: (yargs) =>
    storeOption(yargs)
      .positional("file", {
        type: "string",
        default: "-",
        defaultDescription: "standard input",
        describe: "one JSON object per line: orderId, sku, quantity",
      })
      .example("$0 orders add orders.jsonl", '{"orderId":"7","sku":"teapot","quantity":1} …'),
  async handler(args) {
    const orders = parseOrders(await readAll(args.file));
    await withStore(args, async (opened) => {
      const added = await addOrders(opened.database, orders);
      print(`${added} new orders, ${orders.length - added} known`);
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
  describe: "Answer open orders: fulfilled or sold out",
  builder: (yargs) =>
    locksOption(storeOption(yargs), "the store of the articles' locks")
      .option("concurrency", {
        type: "string",
        requiresArg: true,
        default: "4",
        describe: "the largest number of articles at a time",
      })
      .option("group", {
        type: "string",
        requiresArg: true,
        default: "500",
        describe: "the largest number of orders per lock and transaction",
      })
      .option("ttl", {
        type: "string",
        requiresArg: true,
        default: "10s",
        describe: "how long the lock of a killed process blocks its article",
      })
      .option("follow", {
        type: "boolean",
        default: false,
        describe: "wait for more orders instead of ending",
      })
      .example("$0 orders fulfil --store mysql://shop@db/shop", "run several processes at once")
      .epilog(
        `Answers the orders for one article together, under one lock in one transaction.
While another process works on an article, continues with other articles. After
a kill at any time, each order has both its answer and its units, or neither.

On TERM, INT or HUP, finishes the current groups and ends.`,
      ),
  async handler(args) {
    const concurrency = parseInteger("--concurrency", args.concurrency);
    const group = parseInteger("--group", args.group);
    checkWhole("--concurrency", concurrency, 1, 100);
    checkWhole("--group", group, 1, 1_000);
    const ttl = parseDuration("ttl", args.ttl);
    checkSpan("--ttl", ttl, 1);
    const { follow } = args;
    await withLocks(args.locks, (lockStore) =>
      withStore(args, (opened) =>
        fulfilAll(opened, lockStore ?? opened, { concurrency, group, ttl, follow }),
      ),
    );
  },
};

interface FulfilSettings {
  readonly concurrency: number;
  readonly group: number;
  readonly ttl: number;
  readonly follow: boolean;
}

async function fulfilAll(
  opened: AnyStore,
  { locks }: AnyStore,
  settings: FulfilSettings,
): Promise<void> {
  const database = opened.database;
  using shutdown = listenForShutdown();
  using progress = showProgress();
  const startedAt = performance.now();
  const { groups, passedOver, ...answers } = await fulfil({
    ...settings,
    ...{ locks, database, inventory: sqlInventory(database) },
    signal: shutdown.requested,
    abort: shutdown.forced,
    onPoll: (count) => progress.update(count),
  });
  const seconds = (performance.now() - startedAt) / 1_000;
  const orders = Object.values(answers).reduce((sum, count) => sum + count, 0);
  const ordersPerSec = Math.round(orders / seconds);
  print(JSON.stringify({ ...answers, groups, passedOver, seconds: round(seconds), ordersPerSec }));
  if (shutdown.forced.aborted && shutdown.signal)
    process.exitCode = exitStatusOfSignal(shutdown.signal);
}

/** Shows a progress bar on a terminal: how many of the orders seen open have been answered. */
function showProgress() {
  const format = "{bar} {percentage}% | {value} of {total} orders";
  const bar = new SingleBar({
    format,
    noTTYOutput: false,
    clearOnComplete: true,
    hideCursor: true,
  });
  let total = 0;
  bar.start(0, 0);
  return {
    update(open: number) {
      total = Math.max(total, open);
      bar.setTotal(total);
      bar.update(total - open);
    },
    [Symbol.dispose]: () => bar.stop(),
  };
}

const countCommand: CommandModule<unknown, StoreArgs> = {
  command: "count",
  describe: "Count orders by answer",
  builder: (yargs) => storeOption(yargs).example("$0 orders count", "show the progress"),
  handler: (args) =>
    withStoreToRead(args, async (opened) => print(formatJson(await countOrders(opened.database)))),
};

/** Parses one order per line. Throws a TypeError that names the line. */
function parseOrders(lines: string): readonly StockOrder[] {
  return lines.split("\n").flatMap((line, i) => {
    if (line.trim() === "") return [];
    const position = `line ${i + 1}`;
    const order = parseJson(position, line) as StockOrder | null;
    if (order === null || typeof order !== "object") {
      throw new TypeError(`${position} must be a JSON object, not ${line.slice(0, 40)}`);
    }
    try {
      checkOrder(order);
    } catch (error) {
      throw new TypeError(`${position}: ${(error as Error).message}`);
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
