import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { type AddressInfo, connect, createServer } from "node:net";
import { inject } from "vitest";
import { Connection } from "../../core/stores/zookeeper/client/connection.ts";
import { closeRequest, type Request } from "../../core/stores/zookeeper/client/requests.ts";
import type { Path, ZooKeeperSession } from "../../core/stores/zookeeper/client/zookeeper.ts";
import { sortedBySequence } from "../../core/stores/zookeeper/locks/queue.ts";
import type { Server, ServerNode } from "../../infra/servers/server.ts";
import type { ZooKeeperServer } from "./zookeeper-servers.ts";

/** Returns a path below the root that no other test uses. */
export function freshRoot(): Path {
  return `/test-${randomBytes(6).toString("hex")}`;
}

/** Returns the single server that all tests share. */
export function singleZooKeeper(): ZooKeeperServer {
  const server = inject("zookeeperServers").find(({ servers }) => servers.length === 1);
  if (!server) throw new Error("there is no single zookeeper");
  return server;
}

/** Returns the names of the contenders in a queue, the earliest first. */
export async function contendersOf(
  session: ZooKeeperSession,
  queue: Path,
): Promise<readonly string[]> {
  const [, children = []] = await Promise.all([session.sync(), session.children(queue)]);
  return sortedBySequence(children);
}

/** Returns the status of a node: its role in the ensemble, and the number of its connections. */
async function askNode({ config }: ServerNode): Promise<string> {
  const socket = connect({ port: config.port, host: "127.0.0.1" });
  socket.write("srvr");
  let said = "";
  for await (const chunk of socket) said += chunk;
  return said;
}

/** Returns the node that leads the ensemble now, and its followers. */
export async function partsOf({ nodes }: Pick<Server, "nodes">) {
  const parts = await Promise.all(
    nodes.map(async (node) => ({ node, said: await askNode(node).catch(() => "") })),
  );
  const leader = parts.find(({ said }) => said.includes("Mode: leader"))?.node;
  if (!leader) throw new Error("there is no leader");
  const followers = parts.filter(({ said }) => said.includes("Mode: follower"));
  return { leader, followers: followers.map(({ node }) => node) };
}

/** Ends a session as another client that knows its id and password. */
export async function endSession(
  server: string,
  session: bigint,
  password: Uint8Array,
): Promise<void> {
  while ((await actAs(server, session, password, closeRequest())) !== "expired");
}

/**
 * Sends a request as another client that knows the id and the password of a session. The owner of the session reconnects at
 * once, and may be faster than the request, or than the answer to the new connection: "ended".
 */
export async function actAs(
  server: string,
  session: bigint,
  password: Uint8Array,
  { kind, body }: Request<unknown>,
): Promise<"answered" | "ended" | "expired"> {
  const told = Promise.withResolvers<"answered" | "ended">();
  const answered = () => told.resolve("answered");
  const opening = Connection.open(server, {
    request: { session, password, timeout: 20_000, lastZxid: 0n },
    events: { changed() {}, refused() {}, answered, ended: () => told.resolve("ended") },
    span: 4_000,
    signal: new AbortController().signal,
  });
  const opened = await opening.catch(() => undefined);
  if (!opened) return "ended";
  const { connection, response } = opened;
  const isExpired = response.timeout <= 0;
  if (!isExpired) connection.request(kind, body);
  const outcome = await told.promise;
  connection.destroy();
  return isExpired ? "expired" : outcome;
}

/** Opens a connection that reads the password of the first session, at the end of the server's first message. */
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
