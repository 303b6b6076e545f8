import { readFileSync, writeFileSync } from "node:fs";
import { SingleBar } from "cli-progress";
import yargs from "yargs";
import { hideBin } from "yargs/helpers";
import { note, print } from "../../functions/cli/terminal/output.ts";
import { installPeers } from "../bench/peers.ts";
import { proofPage } from "../prove/page.ts";
import { writeScorecard } from "../scorecard/write.ts";
import { measuredCode } from "../support/commit.ts";
import { whole } from "../support/options.ts";
import { FAULTS, OPERATION_FAULTS } from "./faults.ts";
import { CONTESTANTS, type ContestantName } from "./locks.ts";
import { type PeersRun, type PeersRuns, peersTables } from "./page.ts";
import { SERVICES, type ServiceName } from "./services.ts";
import { type Trial, tryLock } from "./try-lock.ts";
import { type ServiceTrial, tryService } from "./try-service.ts";

const FAULT_NAMES = [...new Set([...keysOf(FAULTS), ...keysOf(OPERATION_FAULTS)])];

const args = await yargs(hideBin(process.argv))
  .scriptName("npm run peers --")
  .usage(
    `$0

Injects the same faults into the holders of our locks and of others, and counts lost updates. Delivers operations twice under
faults to our steps and to other packages, and counts the effects. Without names, tries all.`,
  )
  .option("lock", { array: true, choices: keysOf(CONTESTANTS), describe: "the locks to try" })
  .option("service", { array: true, choices: keysOf(SERVICES), describe: "the services to try" })
  .option("fault", {
    array: true,
    choices: FAULT_NAMES,
    default: FAULT_NAMES,
    describe: "the faults to inject",
  })
  .option(
    "rounds",
    whole("rounds", 1, { default: 3, describe: "how often each fault is injected" }),
  )
  .option("ttl", whole("ttl", 1, { default: 2_000, describe: "the ttl of locks, in milliseconds" }))
  .option(
    "seed",
    whole("seed", 0, {
      default: Date.now() % 1_000_000,
      defaultDescription: "another one each time",
      describe: "determines the order of the faults, and which process and server each one meets",
    }),
  )
  .option("json", { type: "boolean", default: false, describe: "print one JSON document" })
  .option("write", {
    type: "boolean",
    default: false,
    describe:
      "write docs/peers.json, which has the last two runs, and their tables into docs/proof.md",
  })
  .strict()
  .parseAsync();

const { fault, rounds, ttl, seed, json, write } = args;
const isAll = !args.lock && !args.service;
const lock: readonly ContestantName[] = args.lock ?? (isAll ? keysOf(CONTESTANTS) : []);
const service: readonly ServiceName[] = args.service ?? (isAll ? keysOf(SERVICES) : []);
const bar = new SingleBar({ format: "{bar} {percentage}% {what}", clearOnComplete: true });
const lockFaults = keysOf(FAULTS).filter((name) => fault.includes(name));
const serviceFaults = keysOf(OPERATION_FAULTS).filter((name) => fault.includes(name));
const total = (lock.length * lockFaults.length + service.length * serviceFaults.length) * rounds;
bar.start(total, 0, { what: "" });
const onProgress = (what: string) => {
  if (bar.isActive) bar.increment(/\d of \d/.test(what) ? 1 : 0, { what });
  else note(what);
};
const code = measuredCode();
await installPeers(onProgress);
const bounds = { rounds, ttl, seed, onProgress };
const trials: Trial[] = [];
for (const name of lock) trials.push(await tryLock(name, { ...bounds, faults: lockFaults }));
const services: ServiceTrial[] = [];
for (const name of service) {
  services.push(await tryService(name, { ...bounds, faults: serviceFaults }));
}
bar.stop();
const date = new Date().toISOString().slice(0, 10);
const run: PeersRun = { date, ...code, seed, ttl, trials, services };
if (write) {
  const { runs: former }: PeersRuns = JSON.parse(readFileSync(fileOf("peers.json"), "utf8"));
  const runs = [...former, run].slice(-2);
  writeFileSync(fileOf("peers.json"), `${JSON.stringify({ runs }, null, 2)}\n`);
  const read = (name: string) => JSON.parse(readFileSync(fileOf(name), "utf8"));
  writeFileSync(fileOf("proof.md"), proofPage(read("proof.json"), { runs }, read("soak.json")));
  writeScorecard();
}
print(json ? JSON.stringify(run) : `${peersTables(run)}\nnpm run peers -- --seed ${seed}`);

function fileOf(name: string): URL {
  return new URL(`../../docs/${name}`, import.meta.url);
}

function keysOf<Key extends string>(record: Readonly<Record<Key, unknown>>): readonly Key[] {
  return Object.keys(record) as Key[];
}
