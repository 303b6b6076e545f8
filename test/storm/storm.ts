import { mkdir, readdir, stat } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import type { Inventory } from "../../core/inventory/inventory.ts";
import { bundle } from "../../infra/aws/bundle.ts";
import { openReady } from "../../infra/open-ready.ts";
import { temporaryFolder } from "../../infra/servers/reap.ts";
import { EventSource } from "../support/lambda-host/event-source.ts";
import { LambdaFunction } from "../support/lambda-host/function.ts";
import { Queue } from "../support/lambda-host/queue.ts";
import { sqsEndpoint } from "../support/lambda-host/sqs-endpoint.ts";
import { pause } from "../support/until.ts";
import { type Demand, messagesOf, SKU } from "./demand.ts";

export interface StormOptions extends Demand {
  /** The URL of the database with the stock. */
  readonly store: string;

  /** The URL of the lock store. Default: the database. */
  readonly locks?: string | undefined;
  readonly units: number;
  readonly environments: number;

  /** The ttl of the locks in milliseconds. */
  readonly ttl: number;

  /** The longest wait for a lock, in milliseconds. Default 0, as in the handler. */
  readonly wait?: number;

  /** The messages per thousand that are delivered twice at the same time. */
  readonly twice: number;

  /** Restarts the server of the store. Called when a tenth of the units is sold. */
  readonly restart?: (() => Promise<void>) | undefined;

  /** The length of a second of the queue, in milliseconds: its waits are shortened, the function's are not. Default 200. */
  readonly second?: number;

  /** In milliseconds. */
  readonly limit: number;
}

export interface StormReport {
  /** The units of the sku, by the inventory. */
  readonly sold: number;
  readonly onHand: number;

  /** The orders with this result. */
  readonly applied: number;
  readonly soldOut: number;

  /** The orders with two different results. */
  readonly contradicted: number;

  /** The orders whose result differs from the ledger. */
  readonly mistold: number;

  /** The number of results, including repeated ones. */
  readonly told: number;

  /** The messages that were neither done nor dead-lettered when the time was over. */
  readonly left: number;

  /** The messages that the queue or a handler has dead-lettered. */
  readonly givenUp: number;

  /** The most deliveries of a message. */
  readonly mostReceives: number;
  readonly invocations: Readonly<Record<string, number>>;

  /** The processes that were frozen beyond the ttl of their lock and thawed, and those refused by their fence. */
  readonly thawed: number;
  readonly fencedOut: number;

  /** The hanging processes; each is killed at its timeout. */
  readonly hung: number;

  /** The units that were sold when the server was killed. */
  readonly soldAtRestart?: number | undefined;

  /** The duration of all invocations, in milliseconds. */
  readonly billed: number;

  /** In milliseconds. */
  readonly took: number;
}

/** Runs a flash sale on the Lambda host with all faults. */
export async function storm(options: StormOptions): Promise<StormReport> {
  await using folder = await temporaryFolder("storm");
  await using opened = await openReady(options.store);
  const { inventory } = opened;
  await inventory.set({ sku: SKU, quantity: options.units, operationId: "supply" });
  await bundle(fileURLToPath(new URL("./handler.ts", import.meta.url)), folder.path);
  const notes = join(folder.path, "notes");
  await mkdir(notes);
  const run = await sell(join(folder.path, "index.js"), notes, inventory, options);
  return { ...(await judge(inventory, notes)), ...(await happened(notes)), ...run };
}

/** Returns the broken promises; none if all is well. */
export function problemsOf(
  report: StormReport,
  { orders, units, faults, restart }: StormOptions,
): readonly string[] {
  const sold = Math.min(orders, units);
  const wrong = (what: string, is: number, expected: number) =>
    is === expected ? [] : [`${what}: ${is}, not ${expected}`];
  const tooFew = (what: string, is: number, atLeast: number) =>
    is >= atLeast ? [] : [`${what}: ${is}, not ${atLeast} or more`];
  const { soldAtRestart = 0 } = report;
  const hangs = faults["hang-before"] + faults["hang-after"];
  const late = Math.min(faults.freeze, 1);
  return [
    ...wrong("units sold", report.sold, sold),
    ...wrong("units on hand", report.onHand, units - sold),
    ...wrong("orders told that they are sold", report.applied, sold),
    ...wrong("orders told that they are not", report.soldOut, orders - sold),
    ...wrong("orders told both", report.contradicted, 0),
    ...wrong("orders told other than the ledger says", report.mistold, 0),
    ...wrong("messages left", report.left, 0),
    ...wrong("messages given up", report.givenUp, 0),
    // A storm in which nothing went wrong proves nothing.
    ...wrong("processes that hung", report.hung, hangs),
    ...tooFew("processes killed at their timeout", report.invocations.timeout ?? 0, hangs),
    ...tooFew("processes frozen beyond the ttl", report.thawed, late),
    ...tooFew("of these, kept out by their fence", report.fencedOut, late),
    ...(restart ? tooFew("units sold at the restart", soldAtRestart, 1) : []),
    ...(restart ? tooFew("units unsold at the restart", units - soldAtRestart, 1) : []),
  ];
}

async function sell(module: string, notes: string, inventory: Inventory, options: StormOptions) {
  const { environments, ttl, wait = 0, second = 200, store, locks = "", twice } = options;
  const startedAt = performance.now();
  // A ttl and a half, and a second, to be frozen, and as much for the work.
  const timeout = wait + 2 * ttl + 2_000;
  const invocations: Record<string, number> = {};
  const poison = new Queue({ name: "poison", visibility: 60 });
  const dead = new Queue({ name: "dead", visibility: 60 });
  const queue = new Queue({
    name: "orders",
    visibility: (1.2 * timeout) / second,
    second,
    redrive: { to: dead, after: 50 },
  });
  const messages = messagesOf(options);
  for (const message of messages) queue.send(message);
  await using endpoint = await sqsEndpoint(queue, poison);
  await using fn = new LambdaFunction({
    module,
    handler: "handler",
    timeout,
    concurrency: environments,
    env: {
      AWS_ENDPOINT_URL_SQS: endpoint.url,
      STORM_STORE: store,
      STORM_LOCKS: locks,
      STORM_NOTES: notes,
      STORM_TTL: String(ttl),
      STORM_WAIT: String(wait),
      STORM_POISON: poison.arn,
    },
  });
  let mostReceives = 0;
  const source = new EventSource({
    queue,
    function: fn,
    twice: () => Math.random() * 1_000 < twice,
    onInvoked: ({ type }, records) => {
      invocations[type] = (invocations[type] ?? 0) + 1;
      const receives = records.map(({ attributes }) => Number(attributes.ApproximateReceiveCount));
      mostReceives = Math.max(mostReceives, ...receives);
    },
  });
  const soldAtRestart = await settled(queue, inventory, options);
  await source[Symbol.asyncDispose]();
  const givenUp = poison.messages.length + dead.messages.length;
  const took = Math.round(performance.now() - startedAt);
  const { billed } = fn;
  const left = queue.messages.length;
  return { left, givenUp, mostReceives, invocations, soldAtRestart, billed, took };
}

/** Resolves when the queue is empty or the time is over. Restarts the server once meanwhile. */
async function settled(
  queue: Queue,
  inventory: Inventory,
  { units, restart, limit }: StormOptions,
): Promise<number | undefined> {
  const giveUpAt = performance.now() + limit;
  let soldAtRestart: number | undefined;
  while (queue.messages.length > 0 && performance.now() < giveUpAt) {
    if (restart && soldAtRestart === undefined) {
      const { sold = 0 } = (await inventory.get(SKU)) ?? {};
      if (sold >= units / 10) {
        soldAtRestart = sold;
        await restart();
      }
    }
    await pause(10);
  }
  return soldAtRestart;
}

/** Compares the results that the orders were told with the ledger of the stock. */
async function judge(inventory: Inventory, notes: string) {
  const stock = await inventory.get(SKU);
  const told = (await readdir(notes)).filter((file) => file.startsWith("told "));
  const sizes = await Promise.all(told.map(async (file) => (await stat(join(notes, file))).size));
  const ordersTold = (wanted: string) =>
    new Set(
      told.flatMap((file) => {
        const [, orderId = "", outcome] = file.split(" ");
        return outcome === wanted ? [orderId] : [];
      }),
    );
  const [applied, soldOut] = [ordersTold("applied"), ordersTold("sold-out")];
  const entries = await inventory.history(SKU, { limit: 10_000 });
  const inLedger = new Set(
    entries.flatMap(({ kind, outcome, operationId }) =>
      kind === "decrement" && outcome === "applied" && operationId ? [operationId] : [],
    ),
  );
  return {
    sold: stock?.sold ?? 0,
    onHand: stock?.onHand ?? 0,
    applied: applied.size,
    soldOut: soldOut.size,
    contradicted: applied.intersection(soldOut).size,
    mistold: applied.symmetricDifference(inLedger).size,
    told: sizes.reduce((sum, size) => sum + size, 0),
  };
}

async function happened(notes: string) {
  const files = await readdir(notes);
  const count = (what: string) => files.filter((file) => file.startsWith(what)).length;
  return { thawed: count("thawed"), fencedOut: count("fenced-out"), hung: count("hang-") };
}
