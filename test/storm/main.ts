import yargs from "yargs";
import { hideBin } from "yargs/helpers";
import { names, whole } from "../support/options.ts";
import { STORES } from "./stores.ts";
import { problemsOf, type StormOptions, storm } from "./storm.ts";

const values = await yargs(hideBin(process.argv))
  .scriptName("npm run storm --")
  .usage(
    `$0 --store mysql --orders 2000 --units 500

A flash sale on the Lambda host. Prints a JSON report. The exit status is 1 if a guarantee was broken.`,
  )
  .option(
    "store",
    names("store", STORES, {
      default: "sqlite",
      describe: `the stores, of ${Object.keys(STORES).join(", ")}`,
    }),
  )
  .options({
    orders: whole("orders", 1, { default: 2_000, describe: "the orders" }),
    units: whole("units", 0, { default: 500, describe: "the units on hand" }),
    environments: whole("environments", 1, {
      default: 20,
      describe: "the most functions at a time",
    }),
    ttl: whole("ttl", 1, { default: 2_000, describe: "the ttl of locks, in milliseconds" }),
    wait: whole("wait", 0, {
      default: 0,
      describe: "the longest wait for a lock, in milliseconds",
    }),
    freezes: whole("freezes", 0, { default: 10, describe: "the frozen functions" }),
    kills: whole("kills", 0, { default: 10, describe: "the killed functions" }),
    duplicates: whole("duplicates", 0, {
      default: 100,
      describe: "the orders that are sent twice",
    }),
    twice: whole("twice", 0, {
      default: 50,
      describe: "the messages per thousand that are delivered twice at a time",
    }),
    second: whole("second", 1, {
      default: 200,
      describe: "the length of a second of the queue, in milliseconds",
    }),
    seed: whole("seed", 0, { default: 1, describe: "determines the faults" }),
    limit: whole("limit", 1, { default: 300_000, describe: "the longest sale, in milliseconds" }),
  })
  .option("restart", {
    type: "boolean",
    default: true,
    describe: "restart the server, where that is possible",
  })
  .strict()
  .parseAsync();

for (const name of values.store) {
  await using stores = await STORES[name]();
  const { orders, units, environments, ttl, wait, second, duplicates, twice, seed, limit } = values;
  const options: StormOptions = {
    ...stores,
    restart: values.restart ? stores.restart : undefined,
    ...{ orders, units, environments, ttl, wait, second, duplicates, twice, seed, limit },
    faults: {
      freeze: values.freezes,
      "hang-before": Math.ceil(values.kills / 2),
      "hang-after": Math.floor(values.kills / 2),
    },
  };
  const report = await storm(options);
  const problems = problemsOf(report, options);
  process.stdout.write(`${JSON.stringify({ store: name, ...report, problems })}\n`);
  if (problems.length > 0) process.exitCode = 1;
}
