import { once } from "node:events";
import { connect } from "node:net";
import { text } from "node:stream/consumers";
import { parseStoreUrl } from "../../infra/store-url.ts";
import { type Finding, judgePresence, judgeVersion, note } from "./finding.ts";

const UNREAD = note(
  "version",
  "no server tells its version: srvr is not allowed, or the port speaks TLS",
  "add srvr to 4lw.commands.whitelist, or look at zkServer.sh version yourself",
);

/** No client can read the setting. */
const DURABILITY = note(
  "durability",
  "ZooKeeper does not tell its forceSync: with forceSync=no, a crash of the servers loses locks",
  "do not set zookeeper.forceSync=no",
);

/** Asks each server of the URL for its version, by the command srvr. */
export async function examineZooKeeper(
  url: string,
  signal: AbortSignal,
): Promise<readonly Finding[]> {
  const { network } = parseStoreUrl(url);
  const servers = await Promise.all(
    (network?.hosts ?? []).map(async ({ host, port = 2_181 }) => ({
      address: `${host}:${port}`,
      answer: await askServer(host, port, signal).catch(() => undefined),
    })),
  );
  const versionOf = (answer = "") => /^Zookeeper version: ([\d.]+)/m.exec(answer)?.[1];
  const versions = new Set(servers.flatMap(({ answer }) => versionOf(answer) ?? []));
  if (versions.size === 0) return [UNREAD, DURABILITY];
  const away = servers.filter(({ answer }) => !answer?.includes("\nMode: "));
  const addresses = (some: typeof servers) => some.map(({ address }) => address);
  return [
    judgePresence(addresses(servers), addresses(away)),
    ...[...versions].map((version) => judgeVersion("ZooKeeper", version, "3.5")),
    DURABILITY,
  ];
}

async function askServer(host: string, port: number, signal: AbortSignal): Promise<string> {
  const socket = connect({ host, port, signal });
  await once(socket, "connect", { signal });
  socket.write("srvr");
  // The server answers, and ends the connection.
  return text(socket);
}
