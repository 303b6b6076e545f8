import { writeFileSync } from "node:fs";
import yargs from "yargs";
import { hideBin } from "yargs/helpers";
import { NotInstalledError } from "../../infra/servers/binaries.ts";
import { startServer } from "../../infra/servers/start.ts";
import { measuredCode } from "../support/commit.ts";
import { names, whole } from "../support/options.ts";
import { type GrowthReport, growth, type Soak, soakTable, toStoreSoak } from "./growth.ts";
import { soak } from "./soak.ts";
import { STORES, type WatchedStoreName } from "./stores.ts";

const {
  seconds,
  growth: isGrowth,
  store,
  write,
} = await yargs(hideBin(process.argv))
  .scriptName("npm run soak --")
  .usage(
    `$0

Workers execute orders on new servers, etcd for the locks and MariaDB for the journal, and are killed every few seconds. Then orders, units and charges are counted. Prints a JSON report. The exit status is 1 if a guarantee was broken.`,
  )
  .option("seconds", whole("seconds", 1, { default: 120, describe: "how long" }))
  .option("growth", {
    type: "boolean",
    default: false,
    describe:
      "see instead whether memory, handles, records and leases of one process for each store grow",
  })
  .option(
    "store",
    names("store", STORES, {
      default: Object.keys(STORES).join(","),
      describe: `for --growth: of ${Object.keys(STORES).join(", ")}`,
    }),
  )
  .option("write", {
    type: "boolean",
    default: false,
    describe:
      "with --growth: write docs/soak.json, from which `npm run prove` makes a part of its page",
  })
  .strict()
  .parseAsync();
const log = (line: string) => process.stderr.write(`${line}\n`);

if (isGrowth) await watchGrowth();
else await countOrders();

async function countOrders(): Promise<void> {
  await using mysql = await startServer("mariadb", { onProgress: log });
  await using etcd = await startServer("etcd", { onProgress: log });
  log(`${mysql.version}; ${etcd.version}`);
  const report = await soak({ store: mysql.url, locks: etcd.url, seconds, onProgress: log });
  process.stdout.write(`${JSON.stringify(report, null, 2)}\n`);
  process.exitCode = report.faults.length === 0 ? 0 : 1;
}

/** Watches all stores at the same time. */
async function watchGrowth(): Promise<void> {
  const code = measuredCode();
  const reports = (await Promise.all(store.map(watch))).flat();
  const stores = reports.map(toStoreSoak);
  const soak: Soak = { date: new Date().toISOString().slice(0, 10), ...code, seconds, stores };
  process.stdout.write(`${soakTable(soak)}\n`);
  const file = new URL("../../docs/soak.json", import.meta.url);
  if (write) writeFileSync(file, `${JSON.stringify(soak, null, 2)}\n`);
  const isFine = reports.length > 0 && reports.every(({ grown }) => grown.length === 0);
  process.exitCode = isFine ? 0 : 1;
}

/** Resolves to no report where MySQL is missing: few machines have it beside MariaDB. */
async function watch(name: WatchedStoreName): Promise<readonly GrowthReport[]> {
  await using opened = await STORES[name]().catch((error: unknown) => {
    if (name !== "mysql" || !(error instanceof NotInstalledError)) throw error;
    log(`${name} is not watched: ${error.message}`);
    return undefined;
  });
  if (!opened) return [];
  const report = await growth(name, opened.url, seconds);
  log(`${name}: ${report.grown.join("; ") || "nothing has grown"}`);
  return [report];
}
