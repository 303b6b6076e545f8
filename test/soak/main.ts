import yargs from "yargs";
import { hideBin } from "yargs/helpers";
import { startServer } from "../../infra/servers/start.ts";
import { whole } from "../support/options.ts";
import { soak } from "./soak.ts";

const { seconds } = await yargs(hideBin(process.argv))
  .scriptName("npm run soak --")
  .usage(
    `$0

Workers execute orders on new servers, etcd for the locks and MariaDB for the journal, and are killed every few seconds. Then orders, units and charges are counted. Prints a JSON report. The exit status is 1 if a guarantee was broken.`,
  )
  .option("seconds", whole("seconds", 1, { default: 120, describe: "how long" }))
  .strict()
  .parseAsync();
const log = (line: string) => process.stderr.write(`${line}\n`);

const [mysql, etcd] = await Promise.all([
  startServer("mariadb", { onProgress: log }),
  startServer("etcd", { onProgress: log }),
]);
try {
  log(`${mysql.version}; ${etcd.version}`);
  const report = await soak({ store: mysql.url, locks: etcd.url, seconds, onProgress: log });
  process.stdout.write(`${JSON.stringify(report, null, 2)}\n`);
  process.exitCode = report.faults.length === 0 ? 0 : 1;
} finally {
  await Promise.all([mysql.stop(), etcd.stop()]);
}
