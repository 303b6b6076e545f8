import { existsSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { findOrThrow, NotInstalledError } from "../../infra/servers/binaries.ts";
import { KINDS } from "../../infra/servers/kinds.ts";
import { run } from "../../infra/servers/processes.ts";
import type { Server } from "../../infra/servers/server.ts";
import { startServer } from "../../infra/servers/start.ts";
import { EVERY_VERSION } from "./matrix.ts";
import { orMissing } from "./missing.ts";

/** An etcd server or cluster that all tests share: each test uses keys of its own. */
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

/** Allows a ttl of one second: etcd grants at least one and a half election timeouts. */
export const QUICK_ETCD = {
  etcd: ["--heartbeat-interval=20", "--election-timeout=200"],
  "etcd-cluster": ["--heartbeat-interval=50", "--election-timeout=500"],
} as const;

const ETCDCTL = { binaries: ["etcdctl"], packages: KINDS.etcd.packages };

/** A script that prints a directory with a newer etcd than Debian's. */
const NEWER = fileURLToPath(new URL("../../../shared/servers/newer-etcd", import.meta.url));

/**
 * Starts one node of the etcd that is installed; in `npm run test:long` a cluster of three as well, and both of etcd 3.5 where a
 * script beside this project brings it.
 */
export async function startEtcdServers(say: Say) {
  if (!EVERY_VERSION) return [await startOne("etcd", "etcd", undefined, say)];
  return (await Promise.all([startBoth("etcd", undefined, say), startNewer(say)])).flat();
}

async function startNewer(say: Say) {
  if (existsSync(NEWER)) return startBoth("etcd 3.5", newerFolder(), say);
  say("no newer etcd here besides the installed one: its tests run on that only");
  return [];
}

/** Rejects with a NotInstalledError when the script cannot get etcd 3.5: without apt, or without a network. */
async function newerFolder(): Promise<string> {
  const folder = await run(NEWER, []).catch((error) => {
    throw new NotInstalledError(`there is no etcd 3.5 here: ${error.message}`);
  });
  return folder.trim();
}

function startBoth(name: string, folder: Promise<string> | undefined, say: Say) {
  return Promise.all([
    startOne(name, "etcd", folder, say),
    startOne(`${name} with 3 nodes`, "etcd-cluster", folder, say),
  ]);
}

function startOne(name: string, kind: Etcd["kind"], folder: Promise<string> | undefined, say: Say) {
  return orMissing(start(name, { kind, folder, say }), {
    ...{ name, version: "", url: "", etcdctl: "" },
    endpoints: Array.from({ length: KINDS[kind].size }, () => ""),
  });
}

interface Etcd {
  readonly kind: "etcd" | "etcd-cluster";

  /** Where its binaries are, unless they are on the PATH. */
  readonly folder: Promise<string> | undefined;
  readonly say: Say;
}

async function start(name: string, { kind, folder: found, say }: Etcd) {
  const folder = await found;
  const binary = folder && join(folder, "etcd");
  const etcdctl = folder ? join(folder, "etcdctl") : await findOrThrow(ETCDCTL, say);
  const server = await startServer(kind, { binary, args: QUICK_ETCD[kind], onProgress: say });
  const { version, url } = server;
  const endpoints = endpointsOf(server);
  return { about: { name, version, url, endpoints, etcdctl }, stop: server.stop };
}

/** host:port of each node. */
export function endpointsOf({ url }: Pick<Server, "url">): readonly string[] {
  return url.slice("etcd://".length).split(",");
}
