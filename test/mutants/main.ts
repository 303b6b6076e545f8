import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { SingleBar } from "cli-progress";
import yargs from "yargs";
import { hideBin } from "yargs/helpers";
import { print } from "../../functions/cli/terminal/output.ts";
import { writeScorecard } from "../scorecard/write.ts";
import { measuredCode } from "../support/commit.ts";
import { whole } from "../support/options.ts";
import { CATALOGUE } from "./catalogue/index.ts";
import { hunt, type Quarry, type Trial } from "./hunt.ts";
import { ROOT } from "./mutant.ts";
import { isCaught, isEnough, mutantsPage, type Report } from "./page.ts";

const { only, workers, json, write } = await yargs(hideBin(process.argv))
  .scriptName("npm run mutants --")
  .option("only", {
    type: "string",
    array: true,
    describe: "try the mutants alone whose name, file or room has one of these texts",
  })
  .option(
    "workers",
    whole("workers", 1, { default: 2, describe: "how many mutants are tried at a time" }),
  )
  .option("json", { type: "boolean", default: false, describe: "print one JSON document" })
  .option("write", {
    type: "boolean",
    default: false,
    describe:
      "write docs/mutants.json, and docs/mutants.md from it; with --only, these results in it",
  })
  .strict()
  .parseAsync();

const code = measuredCode();
const all = Object.entries(CATALOGUE).flatMap(([room, mutants]) =>
  mutants.map((mutant): Quarry => ({ room, mutant })),
);
const mutants = all.map(({ mutant }) => mutant);
const chosen = all.filter(
  ({ room, mutant: { name, file } }) =>
    only?.some((text) => [room, name, file].some((one) => one.includes(text))) ?? true,
);

const known = only ? readKnown() : [];
const bar = new SingleBar({ format: "{bar} {value}/{total} {name}", clearOnComplete: true });
bar.start(chosen.length, 0, { name: "" });
const trials: Trial[] = [];
await hunt(chosen, workers, (trial) => {
  trials.push(trial);
  if (write) save();
  if (!isCaught(trial) && !json) tell(trial);
  bar.increment(1, { name: trial.name });
}).finally(() => bar.stop());
const report = reportOf(trials);
if (json) print(JSON.stringify(report));
else print(`${trials.filter(isCaught).length} of ${trials.length} mutants were caught`);
if (!isEnough(report, mutants)) process.exitCode = 1;

/** Writes the results so far: an interrupted hunt can be taken up with `--only`. */
function save(): void {
  const whole = reportOf([...known, ...trials]);
  writeFileSync(fileOf("mutants.json"), `${JSON.stringify(whole, null, 2)}\n`);
  writeFileSync(fileOf("mutants.md"), mutantsPage(whole, mutants));
  writeScorecard();
}

/** Returns the last trial of each mutant, in the order of the catalogue. */
function reportOf(some: readonly Trial[]): Report {
  const last = new Map(some.map((trial) => [trial.name, trial]));
  return {
    date: new Date().toISOString().slice(0, 10),
    ...code,
    node: process.versions.node,
    trials: mutants.flatMap(({ name }) => last.get(name) ?? []),
  };
}

function readKnown(): readonly Trial[] {
  const file = fileOf("mutants.json");
  return existsSync(file) ? (JSON.parse(readFileSync(file, "utf8")) as Report).trials : [];
}

function tell({ room, name, outcome, by }: Trial): void {
  if (bar.isActive) {
    process.stderr.cursorTo(0);
    process.stderr.clearLine(0);
  }
  print([outcome, room, name, by].filter((part) => part !== undefined).join(": "));
}

function fileOf(name: string): URL {
  return new URL(`docs/${name}`, ROOT);
}
