import { join } from "node:path";
import type { Place, ServerKind } from "./kinds.ts";
import { isServing } from "./probes.ts";

/** Debian's archives: the first one names those that it needs, and without the second nothing is logged. */
const JARS = ["zookeeper", "slf4j-simple"].map((name) => `/usr/share/java/${name}.jar`);

const CLASS_PATH = ["-cp", JARS.join(":")];

/** One node of ZooKeeper: a small heap, and a few compiler threads less on a machine with few cores. */
const JAVA = ["-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"];

/** Empty containers go after a second, and not after a minute. */
const SETTINGS = ["-Dznode.container.checkIntervalMs=1000"];

export const zookeeper = {
  size: 1,
  peerPorts: 2,
  binaries: ["java"],
  files: (place, all) => ({
    "zoo.cfg": configuration(place, all),
    "data/myid": `${idOf(place, all)}\n`,
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
  serves: isServing,
  url: (ports) => `zookeeper://${ports.map((port) => `127.0.0.1:${port}`).join(",")}`,
} as const satisfies ServerKind;

/** Sessions of 400 ms to an hour; other nodes are waited for as long as busy cores take. */
function configuration(place: Place, all: readonly Place[]): string {
  const peers = all.map((each) => {
    const address = `127.0.0.1:${each.peerPorts.join(":")};127.0.0.1:${each.port}`;
    return `server.${idOf(each, all)}=${address}`;
  });
  const lines = [
    `dataDir=${join(place.folder, "data")}`,
    "tickTime=200",
    "maxSessionTimeout=3600000",
    "initLimit=50",
    "syncLimit=15",
    "maxClientCnxns=0",
    "admin.enableServer=false",
    "4lw.commands.whitelist=srvr",
    ...(all.length > 1 ? peers : ["clientPortAddress=127.0.0.1", `clientPort=${place.port}`]),
  ];
  return `${lines.join("\n")}\n`;
}

function idOf(place: Place, all: readonly Place[]): number {
  return all.indexOf(place) + 1;
}
