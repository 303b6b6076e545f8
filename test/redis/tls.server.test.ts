import { createClient } from "@redis/client";
import { Redis } from "ioredis";
import { createClient as createClient5 } from "redis-client-5";
import { afterAll, beforeAll, expect, onTestFinished, test, vi } from "vitest";
import { redisClient } from "../../core/stores/redis/client/open.ts";
import { openRedis } from "../../core/stores/redis/index.ts";
import { open } from "../../infra/open.ts";
import { freePort } from "../../infra/servers/processes.ts";
import { startServer } from "../../infra/servers/start.ts";
import { type Authority, makeAuthority } from "../support/certificates.ts";

let authority: Authority;

beforeAll(async () => {
  authority = await makeAuthority();
});

afterAll(() => authority[Symbol.asyncDispose]());

/** Starts a server that also serves TLS on another port, with a certificate of this host. */
async function startWith(host: string, days?: number, ...args: readonly string[]) {
  const port = await freePort();
  const { cert, key } = await authority.sign(host, days);
  const files = [
    "--tls-cert-file",
    cert,
    "--tls-key-file",
    key,
    "--tls-ca-cert-file",
    authority.ca,
  ];
  const server = await startServer("redis", {
    args: ["--tls-port", String(port), ...files, "--tls-auth-clients", "no", ...args],
  });
  return { port, stop: server.stop, [Symbol.asyncDispose]: server.stop };
}

async function lockAt(url: string, wait = 20_000): Promise<string> {
  await using store = await open(url);
  return (await store.locks.lock("a", { ttl: 20_000, wait })).unlock();
}

test("TLS to Redis is used with a private certificate authority when the URL asks for it", async () => {
  await using server = await startWith("localhost");
  expect(await lockAt(`rediss://localhost:${server.port}?ca=${authority.ca}`)).toBe("released");
  const refused = { code: "STORE_REFUSED", retryable: false };
  await expect(lockAt(`rediss://localhost:${server.port}`)).rejects.toMatchObject(refused);
});

test("TLS to Redis refuses a certificate of another host, and one that has expired", async () => {
  for (const [host, days] of [
    ["elsewhere.example", 1],
    ["localhost", -1],
  ] as const) {
    await using server = await startWith(host, days);
    const url = `rediss://localhost:${server.port}?ca=${authority.ca}`;
    await expect(lockAt(url)).rejects.toMatchObject({ code: "STORE_REFUSED" });
  }
});

test("TLS to Redis checks the certificate for a client that is handed in, whatever the environment says", async () => {
  await using server = await startWith("localhost");
  vi.stubEnv("NODE_TLS_REJECT_UNAUTHORIZED", "0");
  onTestFinished(() => void vi.unstubAllEnvs());
  const { port } = server;
  const socket = { host: "localhost", port, tls: true } as const;
  for (const client of [
    new Redis({ host: "localhost", port, tls: {}, lazyConnect: true }),
    createClient({ socket }),
    createClient5({ url: `rediss://localhost:${port}` }),
  ]) {
    await using store = await openRedis(client);
    const locking = store.locks.tryLock("a", { ttl: 20_000 });
    await expect(locking).rejects.toMatchObject({ code: "STORE_REFUSED" });
  }
});

test("TLS to Redis does not fall back to plain text when the server has no TLS", async () => {
  await using server = await startServer("redis");
  const port = Number(new URL(server.url).port);
  await using redis = redisClient({ host: "localhost", port, tls: {}, timeout: 500 });
  // The server waits for the end of a command.
  await expect(redis.call(["PING"])).rejects.toMatchObject({ code: "STORE_UNAVAILABLE" });
});

test("TLS to Redis shows the client's certificate to a server that asks for it", async () => {
  await using server = await startWith("localhost", 1, "--tls-auth-clients", "yes");
  const url = `rediss://localhost:${server.port}?ca=${authority.ca}`;
  // The end of the connection may overtake the server's reason.
  await expect(lockAt(url, 0)).rejects.toMatchObject({ code: expect.stringMatching(/^STORE_/) });
  const { cert, key } = await authority.sign("shop");
  expect(await lockAt(`${url}&cert=${cert}&key=${key}`)).toBe("released");
});
