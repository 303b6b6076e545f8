import { spawn } from "node:child_process";
import { once } from "node:events";
import { chmod, mkdtemp, readdir, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { findOrInstall } from "../../infra/servers/binaries.ts";
import { acceptsConnections } from "../../infra/servers/probes.ts";
import { freePort, processesOn, run } from "../../infra/servers/processes.ts";
import { forget, reap } from "../../infra/servers/reap.ts";
import { until } from "../support/until.ts";

/** Debian's folder of server versions. */
const DEBIAN = "/usr/lib/postgresql";

/** Starts PostgreSQL with its durable default settings. The server ends with this process. */
export async function startPostgres(onProgress: (step: string) => void) {
  const bin = await findBin(onProgress);
  onProgress("starting postgres");
  const folder = await mkdtemp(join(tmpdir(), "lockstep-postgres-"));
  reap(folder);
  await chmod(folder, 0o777);
  const data = join(folder, "data");
  // PostgreSQL refuses to run as root.
  const user = process.getuid?.() === 0 ? ["runuser", "-u", "postgres", "--"] : [];
  const [initdb = "", ...args] = [
    ...user,
    join(bin, "initdb"),
    "-D",
    data,
    "-A",
    "trust",
    "-U",
    "postgres",
  ];
  await run(initdb, args, { cwd: folder });
  const port = await freePort();
  const [file = "", ...command] = [
    ...user,
    join(bin, "postgres"),
    "-D",
    data,
    "-p",
    String(port),
    "-k",
    folder,
  ];
  const child = spawn(file, command, { stdio: "ignore", cwd: folder });
  const ended = once(child, "exit");
  await until(() => acceptsConnections(port), 30_000);
  return {
    url: `postgresql://postgres@127.0.0.1:${port}/postgres`,
    version: (await run(join(bin, "postgres"), ["--version"])).trim(),
    async stop() {
      // Not the child: runuser does not forward signals.
      for (const pid of processesOn(folder)) process.kill(pid, "SIGKILL");
      await ended;
      await rm(folder, { recursive: true, force: true, maxRetries: 10 });
      forget(folder);
    },
  };
}

async function findBin(onProgress: (step: string) => void): Promise<string> {
  const installed = await newest();
  if (installed) return installed;
  await findOrInstall({ binaries: ["pg_ctlcluster"], packages: ["postgresql"] }, onProgress);
  const bin = await newest();
  if (bin) return bin;
  throw new Error("PostgreSQL is not installed (Debian: apt-get install postgresql)");
}

async function newest(): Promise<string | undefined> {
  const versions = await readdir(DEBIAN).catch((): string[] => []);
  const version = versions.toSorted((a, b) => Number(a) - Number(b)).at(-1);
  return version && join(DEBIAN, version, "bin");
}
