import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { type AddressInfo, connect, createServer } from "node:net";
import { inject } from "vitest";
import { inLine } from "../../core/stores/zookeeper/queue.ts";
import { Connection } from "../../core/zookeeper/connection.ts";
import { closeRequest } from "../../core/zookeeper/requests.ts";
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

/** Ends a session as somebody else who knows its id and password. */
export async function endSession(
  server: string,
  session: bigint,
  password: Uint8Array,
): Promise<void> {
  // Its owner comes back at once, and may be faster than the request, or than the answer to who we are.
  for (let isOver = false; !isOver; ) {
    const told = Promise.withResolvers<void>();
    const opening = Connection.open(server, {
      hello: { session, password, timeout: 20_000, lastZxid: 0n },
      events: { changed() {}, answered: () => told.resolve(), ended: () => told.resolve() },
      span: 4_000,
      signal: new AbortController().signal,
    });
    const opened = await opening.catch(() => undefined);
    if (!opened) continue;
    const { connection, welcome } = opened;
    isOver = welcome.timeout <= 0;
    const { kind, body } = closeRequest();
    if (!isOver) connection.ask(kind, body);
    await told.promise;
    connection.destroy();
  }
}

/** A wire that overhears the password of the first session: it stands at the end of the server's first message. */
export async function overhear(server: string) {
  const heard = Promise.withResolvers<Uint8Array>();
  const wire = createServer((client) => {
    const upstream = connect(Number(server.split(":")[1]), "127.0.0.1");
    client.pipe(upstream).pipe(client);
    upstream.once("data", (welcome) => heard.resolve(Buffer.from(welcome.subarray(24, 40))));
    for (const socket of [client, upstream]) socket.on("error", () => {});
  });
  await once(wire.listen(0, "127.0.0.1"), "listening");
  return {
    port: (wire.address() as AddressInfo).port,
    password: heard.promise,
    async [Symbol.asyncDispose]() {
      wire.close();
    },
  };
}
