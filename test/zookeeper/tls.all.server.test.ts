import { appendFile, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { connect } from "node:tls";
import { afterAll, beforeAll, expect, test, vi } from "vitest";
import { zookeeperClient } from "../../core/stores/zookeeper/client/client.ts";
import { open } from "../../infra/open.ts";
import { freePort } from "../../infra/servers/processes.ts";
import type { ServerNode } from "../../infra/servers/server.ts";
import { startServer } from "../../infra/servers/start.ts";
import { type Authority, makeAuthority } from "../support/certificates.ts";
import { TcpProxy } from "../support/tcp-proxy.ts";
import { until } from "../support/until.ts";

const options = { ttl: 20_000, wait: 20_000 };

const REFUSED = { code: "STORE_REFUSED", retryable: false };

let authority: Authority;

beforeAll(async () => {
  authority = await makeAuthority();
});

afterAll(() => authority[Symbol.asyncDispose]());

/** Starts a server with an additional TLS port, and a certificate for this host. */
async function startWith(host: string, days?: number, auth = "none") {
  const port = await freePort();
  const server = await startServer("zookeeper");
  const [node] = server.nodes as [ServerNode];
  await node.kill("SIGKILL");
  const { folder } = node.config;
  const { cert, key } = await authority.sign(host, days);
  const store = join(folder, "server.pem");
  await writeFile(store, (await readFile(cert, "utf8")) + (await readFile(key, "utf8")));
  const lines = [
    `secureClientPort=${port}`,
    "serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory",
    `ssl.keyStore.location=${store}`,
    `ssl.trustStore.location=${authority.ca}`,
    `ssl.clientAuth=${auth}`,
  ];
  await appendFile(join(folder, "zoo.cfg"), `${lines.join("\n")}\n`);
  await node.start();
  await until(() => answersTls(port));
  return { port, plain: node.config.port, [Symbol.asyncDispose]: server.stop };
}

/** Whether a TLS handshake comes to an end, maybe with a refusal. The first one takes seconds on a busy core. */
function answersTls(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect({ port, host: "127.0.0.1", rejectUnauthorized: false })
      .once("secureConnect", () => socket.destroy())
      .once("error", ({ code }: NodeJS.ErrnoException) => resolve(code !== "ECONNREFUSED"))
      .once("close", () => resolve(true));
  });
}

async function lockAt(url: string): Promise<string> {
  await using store = await open(url);
  return (await store.locks.lock("a/b", options)).unlock();
}

test("TLS to ZooKeeper is used, with our own authority, when the URL says so", async () => {
  await using server = await startWith("localhost");
  const { port, plain } = server;
  const ca = await readFile(authority.ca, "utf8");
  expect(await lockAt(`zookeepers://ann:pw@localhost:${port}/shop?ca=${authority.ca}`)).toBe(
    "released",
  );
  await expect(lockAt(`zookeepers://localhost:${port}`)).rejects.toMatchObject(REFUSED);
  // The host of the certificate is "localhost".
  const byAddress = `zookeepers://127.0.0.1:${port}?ca=${authority.ca}`;
  await expect(lockAt(byAddress)).rejects.toMatchObject(REFUSED);
  vi.stubEnv("NODE_TLS_REJECT_UNAUTHORIZED", "0");
  await expect(lockAt(`zookeepers://localhost:${port}`)).rejects.toMatchObject(REFUSED);
  vi.unstubAllEnvs();
  // A port without TLS is refused.
  await using client = zookeeperClient({ servers: [`localhost:${plain}`], tls: { ca } });
  const opening = client.openSession(20_000, AbortSignal.timeout(500));
  await expect(opening).rejects.toBeDefined();

  await using wire = await TcpProxy.to(port);
  await using moving = zookeeperClient({ servers: [`localhost:${wire.port}`], tls: { ca } });
  const session = await moving.openSession(20_000);
  await session.create({ path: "/mine", mode: "ephemeral" });
  wire.reset();
  expect((await session.read("/mine"))?.stat.owner).toBe(session.owner);
});

test.each([
  ["elsewhere.example", 1],
  ["localhost", -1],
] as const)(
  "TLS to ZooKeeper refuses a certificate of %s, valid for %i days",
  async (host, days) => {
    await using server = await startWith(host, days);
    const url = `zookeepers://localhost:${server.port}?ca=${authority.ca}`;
    await expect(lockAt(url)).rejects.toMatchObject(REFUSED);
  },
);

test("TLS to ZooKeeper sends the client's certificate to a server that requires it", async () => {
  await using server = await startWith("localhost", 1, "need");
  const url = `zookeepers://localhost:${server.port}?ca=${authority.ca}`;
  // The end of the connection may come before the server's reason.
  await expect(lockAt(url)).rejects.toMatchObject({ code: expect.stringMatching(/^STORE_/) });
  const { cert, key } = await authority.sign("shop");
  expect(await lockAt(`${url}&cert=${cert}&key=${key}`)).toBe("released");
});

test("an invalid certificate is refused at once", () => {
  const tls = { cert: "no certificate" };
  expect(() => zookeeperClient({ servers: ["localhost"], tls })).toThrow(/^zookeeper's tls.*PEM/);
});
