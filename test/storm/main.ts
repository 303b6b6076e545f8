import { parseArgs } from "node:util";
import { STORES, type StormStoresName } from "./stores.ts";
import { problemsOf, type StormOptions, storm } from "./storm.ts";

/**
 * A flash sale on the Lambda host: npm run storm -- --store mysql --orders 2000 --units 500 --environments 20. Prints
 * the report as JSON; the exit status is 1 if a guarantee was broken.
 */
const { values } = parseArgs({
  options: {
    store: { type: "string", default: "sqlite" },
    orders: { type: "string", default: "2000" },
    units: { type: "string", default: "500" },
    environments: { type: "string", default: "20" },
    ttl: { type: "string", default: "2000" },
    wait: { type: "string", default: "0" },
    freezes: { type: "string", default: "10" },
    kills: { type: "string", default: "10" },
    duplicates: { type: "string", default: "100" },
    twice: { type: "string", default: "50" },
    second: { type: "string", default: "200" },
    restart: { type: "boolean", default: true },
    seed: { type: "string", default: "1" },
    limit: { type: "string", default: "300000" },
  },
  allowNegative: true,
});

const names = values.store.split(",") as StormStoresName[];
for (const name of names) {
  if (!Object.hasOwn(STORES, name))
    throw new TypeError(`--store: ${Object.keys(STORES).join(", ")}`);
  await using stores = await STORES[name]();
  const kills = Number(values.kills);
  const options: StormOptions = {
    ...stores,
    restart: values.restart ? stores.restart : undefined,
    orders: Number(values.orders),
    units: Number(values.units),
    environments: Number(values.environments),
    ttl: Number(values.ttl),
    wait: Number(values.wait),
    second: Number(values.second),
    faults: {
      freeze: Number(values.freezes),
      "hang-before": Math.ceil(kills / 2),
      "hang-after": Math.floor(kills / 2),
    },
    duplicates: Number(values.duplicates),
    twice: Number(values.twice),
    seed: Number(values.seed),
    limit: Number(values.limit),
  };
  const report = await storm(options);
  const problems = problemsOf(report, options);
  process.stdout.write(`${JSON.stringify({ store: name, ...report, problems })}\n`);
  if (problems.length > 0) process.exitCode = 1;
}
