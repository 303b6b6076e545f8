import { once } from "node:events";
import { connect } from "node:net";
import { text } from "node:stream/consumers";
import type { ServerNode } from "../../infra/servers/server.ts";

/** Returns the leader of a ZooKeeper ensemble, by the answers of its nodes to the command `srvr`. */
export async function zookeeperLeader(
  nodes: readonly ServerNode[],
): Promise<ServerNode | undefined> {
  const modes = await Promise.all(nodes.map(({ config }) => srvr(config.port).catch(() => "")));
  return nodes.find((_, i) => modes[i]?.includes("Mode: leader"));
}

/** Returns the answer of a node to the command `srvr`. Rejects after a second of silence. */
export async function srvr(port: number): Promise<string> {
  const socket = connect({ port, host: "127.0.0.1", timeout: 1_000 });
  socket.once("timeout", () => socket.destroy(new Error(`the port ${port} did not answer`)));
  await once(socket, "connect");
  socket.write("srvr");
  return await text(socket);
}
