import { join } from "node:path";
import { isZooKeeperServing } from "./probes.ts";
import type { NodeConfig, ServerKind } from "./server-kind.ts";

/**
 * Debian's archives. The first one names its dependencies, except those of TLS. The second one enables logging.
 */
const JARS = ["zookeeper", "slf4j-simple", "netty-codec", "netty-resolver"].map(
  (name) => `/usr/share/java/${name}.jar`,
);

const CLASS_PATH = ["-cp", JARS.join(":")];

/** Settings for a machine with few cores: a small heap and few compiler threads. */
const JAVA = ["-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"];

/** Empty containers are deleted after a second, not after a minute. */
const SETTINGS = ["-Dznode.container.checkIntervalMs=1000"];

export const zookeeper = {
  size: 1,
  peerPorts: 2,
  binaries: ["java"],
  files: (config, all) => ({
    "zoo.cfg": configuration(config, all),
    "data/myid": `${idOf(config, all)}\n`,
  }),
  needs: JARS,
  packages: ["default-jre-headless", "libzookeeper-java"],
  version: [...CLASS_PATH, "org.apache.zookeeper.version.VersionInfoMain"],
  containers: ["zookeeper"],
  start: (binary, _version, { folder }) => [
    binary,
    ...JAVA,
    ...SETTINGS,
    ...CLASS_PATH,
    "org.apache.zookeeper.server.quorum.QuorumPeerMain",
    join(folder, "zoo.cfg"),
  ],
  serves: isZooKeeperServing,
  url: (ports) => `zookeeper://${ports.map((port) => `127.0.0.1:${port}`).join(",")}`,
} as const satisfies ServerKind;

/** Returns the configuration: sessions of 400 ms to an hour, and time limits for busy cores. */
function configuration(config: NodeConfig, all: readonly NodeConfig[]): string {
  const peers = all.map((each) => {
    const address = `${each.host}:${each.peerPorts.join(":")};${each.host}:${each.port}`;
    return `server.${idOf(each, all)}=${address}`;
  });
  const lines = [
    `dataDir=${join(config.folder, "data")}`,
    "tickTime=200",
    "maxSessionTimeout=3600000",
    "initLimit=25",
    "syncLimit=15",
    "maxClientCnxns=0",
    "admin.enableServer=false",
    "4lw.commands.whitelist=srvr",
    ...(all.length > 1 ? peers : [`clientPortAddress=${config.host}`, `clientPort=${config.port}`]),
  ];
  return `${lines.join("\n")}\n`;
}

function idOf(config: NodeConfig, all: readonly NodeConfig[]): number {
  return all.indexOf(config) + 1;
}
