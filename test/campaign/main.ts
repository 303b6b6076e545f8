import { parseArgs } from "node:util";
import { campaign } from "./campaign.ts";
import { type CampaignStoreName, STORES } from "./stores.ts";

/**
 * npm run campaign -- --store mysql,etcd-cluster --seconds 600: kills, freezes, dead connections and restarts while
 * processes contend for locks. Prints a report as JSON for each store; the exit status is 1 where a promise was broken.
 */
const { values } = parseArgs({
  options: {
    store: { type: "string", default: Object.keys(STORES).join(",") },
    seconds: { type: "string", default: "60" },
    seed: { type: "string", default: String(Date.now() % 1_000_000) },
  },
});
const say = (line: string) => process.stderr.write(`${line}\n`);

const names = values.store.split(",") as CampaignStoreName[];
const unknown = names.filter((name) => !Object.hasOwn(STORES, name));
if (unknown.length > 0) {
  throw new TypeError(`--store ${unknown}: there are ${Object.keys(STORES).join(", ")}`);
}
for (const name of names) {
  await using store = await STORES[name](say);
  const report = await campaign({
    store,
    seconds: Number(values.seconds),
    seed: Number(values.seed),
    onProgress: (line) => say(`${name} ${line}`),
  });
  process.stdout.write(`${JSON.stringify({ store: name, ...report }, null, 2)}\n`);
  if (report.violations.length > 0) process.exitCode = 1;
}
