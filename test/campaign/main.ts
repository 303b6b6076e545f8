import { createWriteStream } from "node:fs";
import { finished } from "node:stream/promises";
import yargs from "yargs";
import { hideBin } from "yargs/helpers";
import { names, whole } from "../support/options.ts";
import { type CampaignReport, campaign } from "./campaign.ts";
import { faultMatrix } from "./fault-matrix.ts";
import { STORES, USUAL_STORES } from "./stores.ts";
import { writeFailure } from "./trace.ts";

const values = await yargs(hideBin(process.argv))
  .scriptName("npm run campaign --")
  .usage(
    `$0 --store mariadb,etcd-cluster --seconds 600

Kills, freezes, dead connections, restarts and other faults while processes contend for locks. Prints a JSON report for each store, then how often each fault has met something on each store. A history that breaks a guarantee is also written to campaign-STORE-SEED.json, for ui.perfetto.dev. The exit status is 1 if a guarantee was broken, and 2 if too little was tried to tell.`,
  )
  .option(
    "store",
    names("store", STORES, {
      default: USUAL_STORES.join(","),
      describe: `the stores, of ${Object.keys(STORES).join(", ")}`,
    }),
  )
  .option("seconds", whole("seconds", 1, { default: 60, describe: "how long, for each store" }))
  .option(
    "operations",
    whole("operations", 0, {
      default: 0,
      describe: "goes on until this many have ended",
    }),
  )
  .option(
    "most-seconds",
    whole("most-seconds", 1, { default: 3_600, describe: "but not longer, for each store" }),
  )
  .option(
    "seed",
    whole("seed", 0, {
      default: Date.now() % 1_000_000,
      defaultDescription: "another one each time",
      describe: "determines the faults",
    }),
  )
  .option("history", {
    type: "string",
    describe: "the file that keeps the events, one line of JSON each",
  })
  .strict()
  .parseAsync();
const log = (line: string) => process.stderr.write(`${line}\n`);

const file = values.history === undefined ? undefined : createWriteStream(values.history);
const reports: (CampaignReport & { readonly store: string })[] = [];
for (const name of values.store) {
  await using store = await STORES[name](log);
  const report = await campaign({
    store,
    seconds: values.seconds,
    operations: values.operations,
    mostSeconds: values.mostSeconds,
    seed: values.seed,
    ...(file && { history: file }),
    onProgress: (line) => log(`${name} ${line}`),
    onFailure: (trace) => writeFailure(name, values.seed, trace),
  });
  reports.push({ store: name, ...report });
  process.stdout.write(`${JSON.stringify({ store: name, ...report }, null, 2)}\n`);
}
if (file) await finished(file.end());
process.stdout.write(`${faultMatrix(reports)}\n`);
const verdicts = reports.map(({ verdict }) => verdict);
if (verdicts.includes("unknown")) process.exitCode = 2;
if (verdicts.includes("failed")) process.exitCode = 1;
