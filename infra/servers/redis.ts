import { createHash } from "node:crypto";
import { join } from "node:path";
import { answersPing, isClusterNodeReady, isSentinelReady } from "./probes.ts";
import type { NodeConfig, ServerKind } from "./server-kind.ts";

export const redis = {
  size: 1,
  hasWallClock: true,
  binaries: ["redis-server"],
  packages: ["redis-server"],
  containers: ["redis"],
  start: (binary, _version, { port, folder }) => [
    binary,
    "--port",
    String(port),
    "--bind",
    "127.0.0.1",
    "--dir",
    join(folder, "data"),
    // No persistence.
    "--save",
    "",
    "--appendonly",
    "no",
    // A process title would replace the command line, which identifies the process.
    "--set-proc-title",
    "no",
    "--repl-diskless-sync-delay",
    "0",
  ],
  serves: answersPing,
  url: ([port]) => `redis://127.0.0.1:${port}`,
} as const satisfies ServerKind;

/** How long a node is silent before the others replace it, in milliseconds: a busy core is no failure. */
const SILENCE = 2_000;

/** Three masters, then the replica of each. */
export const redisCluster = {
  ...redis,
  size: 6,
  hasWallClock: false,
  peerPorts: 1,
  containers: [1, 2, 3, 4, 5, 6].map((n) => `redis-cluster-${n}`),
  files: (config, all) => ({ "data/nodes.conf": nodesFile(config, all) }),
  start: (binary, version, config) => [
    ...redis.start(binary, version, config),
    "--cluster-enabled",
    "yes",
    "--cluster-port",
    String(config.peerPorts[0]),
    "--cluster-node-timeout",
    String(SILENCE),
  ],
  serves: isClusterNodeReady,
  url: (ports) => `redis+cluster://${ports.map((port) => `127.0.0.1:${port}`).join(",")}`,
} as const satisfies ServerKind;

const MASTERS = 3;
const SLOTS = 16_384;

/** Returns the state of a cluster whose nodes know each other, as a node would have written it. */
function nodesFile(config: NodeConfig, all: readonly NodeConfig[]): string {
  const lines = all.map((each, i) => {
    const master = all[i - MASTERS];
    const flags = [...(each === config ? ["myself"] : []), master ? "slave" : "master"].join();
    const slots = master ? "" : ` ${firstSlot(i)}-${firstSlot(i + 1) - 1}`;
    const address = `127.0.0.1:${each.port}@${each.peerPorts[0]}`;
    const epoch = (i % MASTERS) + 1;
    return `${idOf(each)} ${address} ${flags} ${master ? idOf(master) : "-"} 0 0 ${epoch} connected${slots}`;
  });
  return [...lines, `vars currentEpoch ${MASTERS} lastVoteEpoch 0`, ""].join("\n");
}

function firstSlot(master: number): number {
  return Math.ceil((SLOTS * master) / MASTERS);
}

function idOf({ port }: NodeConfig): string {
  return createHash("sha1").update(String(port)).digest("hex");
}

/** The name of the master at the sentinels. */
const MASTER = "lockstep";

/** A master, its replica, and three sentinels, which the URL names. */
export const redisSentinel = {
  ...redis,
  size: 5,
  hasWallClock: false,
  containers: [1, 2, 3, 4, 5].map((n) => `redis-sentinel-${n}`),
  files: (config, all) =>
    isSentinel(config, all)
      ? { "sentinel.conf": sentinelFile(config, all) }
      : { "redis.conf": roleFile(config, all) },
  start: (binary, version, config, all) => {
    if (isSentinel(config, all))
      return [binary, join(config.folder, "sentinel.conf"), "--sentinel"];
    const [file, ...options] = redis.start(binary, version, config);
    return [file, join(config.folder, "redis.conf"), ...options];
  },
  serves: isSentinelReady,
  url: ([, , ...sentinels]) =>
    `redis+sentinel://${sentinels.map((port) => `127.0.0.1:${port}`).join(",")}/${MASTER}`,
} as const satisfies ServerKind;

/** Whether a process of a server with sentinels is one of these, and has no data. */
export function isSentinel(config: NodeConfig, all: readonly NodeConfig[]): boolean {
  return all.indexOf(config) >= 2;
}

/** Returns the first role of a server, in a file: sentinels have a server write its new role there, and a restart reads it. */
function roleFile(config: NodeConfig, [master]: readonly NodeConfig[]): string {
  return master && config !== master ? `replicaof 127.0.0.1 ${master.port}\n` : "";
}

/** Returns the settings of a sentinel that knows the others and the replica: it would find them within 10 s. */
function sentinelFile(config: NodeConfig, all: readonly NodeConfig[]): string {
  const [master, replica, ...sentinels] = all as readonly [NodeConfig, NodeConfig, ...NodeConfig[]];
  const others = sentinels.filter((each) => each !== config);
  return [
    `port ${config.port}`,
    "bind 127.0.0.1",
    `dir ${join(config.folder, "data")}`,
    "set-proc-title no",
    `sentinel myid ${idOf(config)}`,
    `sentinel monitor ${MASTER} 127.0.0.1 ${master.port} 2`,
    `sentinel down-after-milliseconds ${MASTER} ${SILENCE}`,
    `sentinel failover-timeout ${MASTER} 10000`,
    `sentinel known-replica ${MASTER} 127.0.0.1 ${replica.port}`,
    ...others.map(
      (each) => `sentinel known-sentinel ${MASTER} 127.0.0.1 ${each.port} ${idOf(each)}`,
    ),
    "",
  ].join("\n");
}
