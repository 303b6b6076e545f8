import { createWriteStream } from "node:fs";
import { finished } from "node:stream/promises";
import { parseArgs } from "node:util";
import { type CampaignReport, campaign } from "./campaign.ts";
import { faultMatrix } from "./fault-matrix.ts";
import { type CampaignStoreName, STORES, USUAL_STORES } from "./stores.ts";
import { writeFailure } from "./trace.ts";

/**
 * npm run campaign -- --store mysql,etcd-cluster --seconds 600: kills, freezes, dead connections, restarts and other faults
 * while processes contend for locks. The default is all stores except MySQL, which few machines have beside MariaDB.
 *
 * Prints a JSON report for each store, then how often each fault has met something on each store. `--history FILE` keeps
 * the events, one line of JSON each. A history that breaks a guarantee is also written to `campaign-STORE-SEED.json`, for ui.perfetto.dev. The exit status is 1 if a guarantee was broken, and 2 if too little was tried to tell.
 */
const { values } = parseArgs({
  options: {
    store: { type: "string", default: USUAL_STORES.join(",") },
    seconds: { type: "string", default: "60" },
    seed: { type: "string", default: String(Date.now() % 1_000_000) },
    history: { type: "string" },
  },
});
const log = (line: string) => process.stderr.write(`${line}\n`);

const names = values.store.split(",") as CampaignStoreName[];
const unknown = names.filter((name) => !Object.hasOwn(STORES, name));
if (unknown.length > 0) {
  throw new TypeError(`unknown store ${unknown}: --store takes ${Object.keys(STORES).join(", ")}`);
}
const file = values.history === undefined ? undefined : createWriteStream(values.history);
const reports: (CampaignReport & { readonly store: string })[] = [];
for (const name of names) {
  await using store = await STORES[name](log);
  const report = await campaign({
    store,
    seconds: Number(values.seconds),
    seed: Number(values.seed),
    ...(file && { history: file }),
    onProgress: (line) => log(`${name} ${line}`),
    onFailure: (trace) => writeFailure(name, Number(values.seed), trace),
  });
  reports.push({ store: name, ...report });
  process.stdout.write(`${JSON.stringify({ store: name, ...report }, null, 2)}\n`);
}
if (file) await finished(file.end());
process.stdout.write(`${faultMatrix(reports)}\n`);
const verdicts = reports.map(({ verdict }) => verdict);
if (verdicts.includes("unknown")) process.exitCode = 2;
if (verdicts.includes("failed")) process.exitCode = 1;
