import { existsSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { findOrInstall } from "../../infra/servers/binaries.ts";
import { run } from "../../infra/servers/node.ts";
import { type Server, startServer } from "../../infra/servers/start.ts";

/** An etcd server or cluster that all tests use at once: each takes keys that no other has. */
export interface EtcdServer {
  readonly name: string;
  readonly version: string;
  readonly url: string;

  /** host:port of each node. */
  readonly endpoints: readonly string[];

  /** The path of the etcdctl of the same version. */
  readonly etcdctl: string;
}

type Say = (step: string) => void;

/** So that a ttl of a second is granted: etcd grants no less than one and a half election timeouts. */
export const QUICK_ETCD = {
  etcd: ["--heartbeat-interval=20", "--election-timeout=200"],
  "etcd-cluster": ["--heartbeat-interval=50", "--election-timeout=500"],
} as const;

/** A script that prints a folder with a newer etcd than Debian's. */
const NEWER = fileURLToPath(new URL("../../../shared/servers/newer-etcd", import.meta.url));

/** One node and three, of the etcd that is installed and of 3.5 where a script beside this project brings it. */
export async function startEtcdServers(say: Say) {
  const started = (await Promise.all([startBoth("etcd", undefined, say), startNewer(say)])).flat();
  const stop = async () => {
    await Promise.all(started.map(({ server }) => server.stop()));
  };
  return { servers: started.map(({ about }) => about), stop };
}

async function startNewer(say: Say) {
  if (existsSync(NEWER)) return startBoth("etcd 3.5", (await run(NEWER, [])).trim(), say);
  say("no newer etcd here besides the installed one: its tests run on that only");
  return [];
}

function startBoth(name: string, folder: string | undefined, say: Say) {
  return Promise.all([
    start(name, { kind: "etcd", folder, say }),
    start(`${name} with 3 nodes`, { kind: "etcd-cluster", folder, say }),
  ]);
}

interface Etcd {
  readonly kind: "etcd" | "etcd-cluster";

  /** Where its binaries are, unless they are on the PATH. */
  readonly folder: string | undefined;
  readonly say: Say;
}

async function start(
  name: string,
  { kind, folder, say }: Etcd,
): Promise<{ readonly about: EtcdServer; readonly server: Server }> {
  const binary = folder && join(folder, "etcd");
  const server = await startServer(kind, { binary, args: QUICK_ETCD[kind], onProgress: say });
  const { version, url } = server;
  const endpoints = endpointsOf(server);
  const etcdctl = folder ? join(folder, "etcdctl") : await findEtcdctl(say);
  return { about: { name, version, url, endpoints, etcdctl }, server };
}

/** host:port of each node. */
export function endpointsOf({ url }: Pick<Server, "url">): readonly string[] {
  return url.slice("etcd://".length).split(",");
}

async function findEtcdctl(say: Say): Promise<string> {
  const required = { binaries: ["etcdctl"], packages: ["etcd-client"] };
  const etcdctl = await findOrInstall(required, say);
  if (etcdctl) return etcdctl;
  throw new Error(
    "there is no etcdctl here: put it on the PATH (Debian: apt-get install etcd-client)",
  );
}
