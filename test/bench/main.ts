import yargs from "yargs";
import { hideBin } from "yargs/helpers";
import { whole } from "../support/options.ts";
import { runAll, runSome } from "./all.ts";
import { GROWTH, growthSuite } from "./growth/growth.ts";
import { GROWING_STORES, type GrowingStoreName } from "./growth/stores.ts";
import { runSuite } from "./run-suite.ts";
import { SUITES } from "./suites.ts";

/** All suites, one after the other. */
const ALL = "all";

const options = await yargs(hideBin(process.argv))
  .scriptName("npm run bench --")
  .option("suite", {
    choices: [...Object.keys(SUITES), GROWTH, ALL],
    array: true,
    demandOption: true,
    describe: "the suite to run, or several of them",
  })
  .option(
    "rounds",
    whole("rounds", 1, {
      default: 15,
      describe: "the number of rounds; every contender runs once per round",
    }),
  )
  .option(
    "block",
    whole("block", 1, { default: 250, describe: "milliseconds of one contender in one round" }),
  )
  .option("json", { type: "boolean", default: false, describe: "print one JSON document" })
  .option("alone", {
    type: "boolean",
    default: false,
    describe: "measure only our functions, or the turns of runs, without installing peers",
  })
  .option("profile", {
    type: "string",
    coerce: (folder?: string) => (folder === "" ? "profiles" : folder),
    describe:
      'write a CPU profile of each contender into this folder, or into "profiles", in place of a comparison',
  })
  .option("stores", {
    type: "string",
    default: GROWING_STORES.join(","),
    coerce: toStores,
    describe: "for growth: the stores",
  })
  .option(
    "seconds",
    whole("seconds", 1, {
      default: 840,
      describe: "for growth: the time of all stores together, which ends the growth of slow ones",
    }),
  )
  .option("write", {
    type: "boolean",
    default: false,
    describe:
      "write docs/benchmarks.json, docs/benchmarks.md from it, and its charts: with all suites, or with these in place of their last results; with --profile: write the profiles of missed aims there",
  })
  .option("chart", { type: "string", describe: "for growth: draw charts into this SVG file" })
  .strict()
  .parseAsync();

const [suite = "", ...others] = options.suite;
if (options.suite.includes(ALL)) await runAll(options);
else if (others.length > 0 || (options.write && options.profile === undefined))
  await runSome(options.suite, options);
else if (suite === GROWTH) await growthSuite(options);
else await runSuite({ ...options, suite });

function toStores(names: string): readonly GrowingStoreName[] {
  return names.split(",").map((name) => {
    const known = GROWING_STORES.find((each) => each === name);
    if (known) return known;
    throw new RangeError(`unknown store "${name}"; growth knows ${GROWING_STORES.join(", ")}`);
  });
}
