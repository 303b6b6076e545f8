import { readFileSync, writeFileSync } from "node:fs";
import { SingleBar } from "cli-progress";
import yargs from "yargs";
import { hideBin } from "yargs/helpers";
import { note, print } from "../../functions/cli/terminal/output.ts";
import type { CampaignStoreName } from "../campaign/stores.ts";
import { STORES } from "../campaign/stores.ts";
import { writeFailure } from "../campaign/trace.ts";
import { writeScorecard } from "../scorecard/write.ts";
import { replay } from "../simulation/run.ts";
import { whole } from "../support/options.ts";
import { isProven, proofPage } from "./page.ts";
import { addCampaigns, LONG, prove, QUICK } from "./prove.ts";

const { seed, long, seconds, operations, mostSeconds, campaigns, json, write, store } = await yargs(
  hideBin(process.argv),
)
  .scriptName("npm run prove --")
  .option(
    "seed",
    whole("seed", 0, {
      describe: "replay the simulated schedule of this seed, shrunk if it fails, and nothing else",
    }),
  )
  .option("long", { type: "boolean", default: false, describe: "go on for hours" })
  .option("seconds", whole("seconds", 1, { describe: "how long schedules are simulated" }))
  .option(
    "operations",
    whole("operations", 0, {
      describe: "how many operations the campaign on each store has at least",
    }),
  )
  .option(
    "most-seconds",
    whole("most-seconds", 1, { describe: "how long such a campaign lasts at the most" }),
  )
  .option("store", {
    type: "string",
    array: true,
    choices: Object.keys(STORES),
    describe: "the stores of the campaigns on real servers; the last campaigns on others are kept",
  })
  .option("campaigns", {
    type: "boolean",
    describe:
      "run the campaigns alone, and put them into the last results; --no-campaigns runs everything else, and keeps them",
  })
  .option("json", { type: "boolean", default: false, describe: "print one JSON document" })
  .option("write", {
    type: "boolean",
    default: false,
    describe: "write docs/proof.json, and docs/proof.md from it",
  })
  .strict()
  .parseAsync();

if (seed === undefined) await proveAll();
else await replaySeed(seed);

async function replaySeed(number: number): Promise<void> {
  const { violations, trace, clients, operations, faults } = await replay(number);
  for (const line of trace) print(line);
  const size = `${clients} clients, ${operations} operations, ${faults} faults`;
  print(`seed ${number}, ${size}: ${violations.length} violations`);
  for (const { check, detail } of violations) print(`${check}: ${detail}`);
  if (violations.length > 0) process.exitCode = 1;
}

async function proveAll(): Promise<void> {
  const bar = new SingleBar({ format: "{bar} {percentage}% {what}", clearOnComplete: true });
  const bounds = long ? LONG : QUICK;
  const named = store as CampaignStoreName[] | undefined;
  const stores = campaigns === false ? [] : (named ?? bounds.stores);
  bar.start(1, 0, { what: "" });
  const options = {
    ...bounds,
    command: ["npm run prove --", ...hideBin(process.argv)].join(" "),
    simulationSeconds: seconds ?? bounds.simulationSeconds,
    campaignOperations: operations ?? bounds.campaignOperations,
    mostCampaignSeconds: mostSeconds ?? bounds.mostCampaignSeconds,
    stores,
    onFailure: writeFailure,
    log: bar.isActive ? () => {} : note,
    onProgress: (share: number, what: string) => bar.update(share, { what }),
  };
  const read = (name: string) => JSON.parse(readFileSync(fileOf(name), "utf8"));
  const last = read("proof.json");
  const proving = campaigns ? addCampaigns(last, options) : prove(options, last);
  const proof = await proving.finally(() => bar.stop());
  const page = proofPage(proof, read("peers.json"), read("soak.json"));
  if (write) {
    writeFileSync(fileOf("proof.json"), `${JSON.stringify(proof, null, 2)}\n`);
    writeFileSync(fileOf("proof.md"), page);
    writeScorecard();
  }
  print(json ? JSON.stringify(proof) : page);
  // Campaigns that this run has kept are of an earlier verdict.
  const ran = proof.campaigns.filter((one) => (stores as readonly string[]).includes(one.store));
  if (!isProven({ ...proof, campaigns: ran })) process.exitCode = 1;
}

function fileOf(name: string): URL {
  return new URL(`../../docs/${name}`, import.meta.url);
}
