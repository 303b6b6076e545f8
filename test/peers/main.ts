import { readFileSync, writeFileSync } from "node:fs";
import { SingleBar } from "cli-progress";
import yargs from "yargs";
import { hideBin } from "yargs/helpers";
import { note, print } from "../../functions/cli/terminal/output.ts";
import { installPeers } from "../bench/peers.ts";
import { proofPage } from "../prove/page.ts";
import { FAULTS, type FaultName } from "./faults.ts";
import { CONTESTANTS, type ContestantName } from "./locks.ts";
import { trialTable } from "./page.ts";
import { type Trial, tryLock } from "./try-lock.ts";

const { lock, fault, rounds, ttl, json, write } = await yargs(hideBin(process.argv))
  .scriptName("npm run peers --")
  .usage(
    "$0\n\nInjects the same faults into the holders of our locks and of others, and counts lost updates.",
  )
  .option("lock", {
    array: true,
    choices: Object.keys(CONTESTANTS) as ContestantName[],
    default: Object.keys(CONTESTANTS) as ContestantName[],
    describe: "the locks to try",
  })
  .option("fault", {
    array: true,
    choices: Object.keys(FAULTS) as FaultName[],
    default: Object.keys(FAULTS) as FaultName[],
    describe: "the faults to inject",
  })
  .option("rounds", { type: "number", default: 3, describe: "how often each fault is injected" })
  .option("ttl", { type: "number", default: 2_000, describe: "the ttl of locks, in milliseconds" })
  .option("json", { type: "boolean", default: false, describe: "print one JSON document" })
  .option("write", {
    type: "boolean",
    default: false,
    describe: "write docs/peers.json, and its table into docs/proof.md",
  })
  .strict()
  .parseAsync();

const bar = new SingleBar({ format: "{bar} {percentage}% {what}", clearOnComplete: true });
const total = lock.length * fault.length * rounds;
bar.start(total, 0, { what: "" });
const onProgress = (what: string) => {
  if (bar.isActive) bar.increment(/\d of \d/.test(what) ? 1 : 0, { what });
  else note(what);
};
await installPeers(onProgress);
const trials: Trial[] = [];
for (const name of lock)
  trials.push(await tryLock(name, { faults: fault, rounds, ttl, onProgress }));
bar.stop();
if (write) {
  const date = new Date().toISOString().slice(0, 10);
  writeFileSync(fileOf("peers.json"), `${JSON.stringify({ date, ttl, trials }, null, 2)}\n`);
  const proof = JSON.parse(readFileSync(fileOf("proof.json"), "utf8"));
  writeFileSync(fileOf("proof.md"), proofPage(proof, { date, ttl, trials }));
}
print(json ? JSON.stringify({ ttl, trials }) : trialTable(trials));

function fileOf(name: string): URL {
  return new URL(`../../docs/${name}`, import.meta.url);
}
