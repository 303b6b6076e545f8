import { parseArgs } from "node:util";
import { startServer } from "../../infra/servers/start.ts";
import { soak } from "./soak.ts";

/** npm run soak -- --seconds 120: soaks the workflow on new servers, etcd for the locks and MariaDB for the journal. */
const { values } = parseArgs({ options: { seconds: { type: "string", default: "120" } } });
const log = (line: string) => process.stderr.write(`${line}\n`);

const [mysql, etcd] = await Promise.all([
  startServer("mariadb", { onProgress: log }),
  startServer("etcd", { onProgress: log }),
]);
try {
  log(`${mysql.version}; ${etcd.version}`);
  const seconds = Number(values.seconds);
  const report = await soak({ store: mysql.url, locks: etcd.url, seconds, onProgress: log });
  process.stdout.write(`${JSON.stringify(report, null, 2)}\n`);
  process.exitCode = report.faults.length === 0 ? 0 : 1;
} finally {
  await Promise.all([mysql.stop(), etcd.stop()]);
}
