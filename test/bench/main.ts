import { SingleBar } from "cli-progress";
import yargs from "yargs";
import { hideBin } from "yargs/helpers";
import { note, print, warn } from "../../functions/cli/terminal/output.ts";
import { table } from "../../functions/cli/terminal/table.ts";
import { checkLimits, measure, type Result } from "./measure.ts";
import { SUITES } from "./suites.ts";

const { suite, rounds, block, json, alone } = await yargs(hideBin(process.argv))
  .scriptName("npm run bench --")
  .option("suite", {
    choices: Object.keys(SUITES),
    demandOption: true,
    describe: "the suite to run",
  })
  .option("rounds", {
    type: "number",
    default: 15,
    describe: "the number of rounds; every contender runs once per round",
  })
  .option("block", {
    type: "number",
    default: 250,
    describe: "milliseconds of one contender in one round",
  })
  .option("json", { type: "boolean", default: false, describe: "print one JSON document" })
  .option("alone", {
    type: "boolean",
    default: false,
    describe: "measure only our functions, or the turns of runs, without installing peers",
  })
  .strict()
  .parseAsync();

const bar = new SingleBar({ format: "{bar} {percentage}%", clearOnComplete: true });
const setUp = SUITES[suite];
if (!setUp) throw new RangeError(`unknown suite ${suite}`);
const {
  server,
  notes = [],
  counts = {},
  limits = {},
  close,
  ...plan
} = await setUp(note, { alone });
for (const each of notes) warn(each);
try {
  bar.start(rounds, 0);
  const { results, ratios: measured } = await measure({
    ...plan,
    rounds,
    blockMillis: block,
    onRound: (round) => bar.update(round),
  });
  bar.stop();
  const ratios = [...checkLimits(limits, counts), ...measured];
  if (json) {
    print(JSON.stringify({ suite, server, notes, counts, results, ratios }));
  } else {
    print(`${suite}, on ${server}\n`);
    print(table(["", "per second", "p50 ms", "p99 ms", "parts"], results.map(toRow)));
    const verdicts = ratios.map(({ name, value, low, high, aim, met }) => [
      name,
      value,
      `${low} to ${high}`,
      aim,
      met ? "met" : "not met",
    ]);
    if (Object.keys(counts).length > 0) print(table(["", "count"], Object.entries(counts)));
    print(table(["ratio", "value", "95 % interval", "aim", ""], verdicts));
  }
} finally {
  bar.stop();
  await close();
}

function toRow({ name, perSec, p50Millis, p99Millis, parts = {} }: Result) {
  const described = Object.entries(parts).map(([part, millis]) => `${part} ${millis}`);
  return [name, perSec, p50Millis, p99Millis, described.join(", ")];
}
