import { parseArgs } from "node:util";
import { campaign } from "./campaign.ts";
import { type CampaignStoreName, STORES } from "./stores.ts";

/**
 * npm run campaign -- --store mysql,etcd-cluster --seconds 600: kills, freezes, dead connections and restarts while
 * processes contend for locks. The default is all stores except MySQL, which few machines have beside MariaDB. Prints a
 * JSON report for each store. The exit status is 1 if a guarantee was broken.
 */
const { values } = parseArgs({
  options: {
    store: {
      type: "string",
      default: Object.keys(STORES)
        .filter((name) => name !== "mysql")
        .join(","),
    },
    seconds: { type: "string", default: "60" },
    seed: { type: "string", default: String(Date.now() % 1_000_000) },
  },
});
const log = (line: string) => process.stderr.write(`${line}\n`);

const names = values.store.split(",") as CampaignStoreName[];
const unknown = names.filter((name) => !Object.hasOwn(STORES, name));
if (unknown.length > 0) {
  throw new TypeError(`unknown store ${unknown}: --store takes ${Object.keys(STORES).join(", ")}`);
}
for (const name of names) {
  await using store = await STORES[name](log);
  const report = await campaign({
    store,
    seconds: Number(values.seconds),
    seed: Number(values.seed),
    onProgress: (line) => log(`${name} ${line}`),
  });
  process.stdout.write(`${JSON.stringify({ store: name, ...report }, null, 2)}\n`);
  if (report.violations.length > 0) process.exitCode = 1;
}
