import { randomBytes } from "node:crypto";
import { connect } from "node:net";
import { inject } from "vitest";
import { inLine } from "../../core/stores/zookeeper/queue.ts";
import type { Path, Session } from "../../core/zookeeper/zookeeper.ts";
import type { ServerNode } from "../../infra/servers/node.ts";
import type { Server } from "../../infra/servers/start.ts";
import type { ZooKeeperServer } from "./zookeeper-servers.ts";

/** A node below the root that no other test has. */
export function freshRoot(): Path {
  return `/test-${randomBytes(6).toString("hex")}`;
}

/** The one node that all tests share. */
export function singleZooKeeper(): ZooKeeperServer {
  const server = inject("zookeeperServers").find(({ servers }) => servers.length === 1);
  if (!server) throw new Error("there is no single zookeeper");
  return server;
}

/** The names of those who stand in a queue, first come first. */
export async function lineOf(session: Session, queue: Path): Promise<readonly string[]> {
  const [, children = []] = await Promise.all([session.sync(), session.children(queue)]);
  return inLine(children);
}

/** What a node says of itself: its part in the ensemble, and how many connections it has. */
async function askNode({ place }: ServerNode): Promise<string> {
  const socket = connect({ port: place.port, host: "127.0.0.1" });
  socket.write("srvr");
  let said = "";
  for await (const piece of socket) said += piece;
  return said;
}

/** The node that leads the ensemble now, and those that follow it. */
export async function partsOf({ nodes }: Pick<Server, "nodes">) {
  const parts = await Promise.all(
    nodes.map(async (node) => ({ node, said: await askNode(node).catch(() => "") })),
  );
  const leader = parts.find(({ said }) => said.includes("Mode: leader"))?.node;
  if (!leader) throw new Error("there is no leader");
  const followers = parts.filter(({ said }) => said.includes("Mode: follower"));
  return { leader, followers: followers.map(({ node }) => node) };
}
