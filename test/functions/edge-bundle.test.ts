import { gzipSync } from "node:zlib";
import { expect, test } from "vitest";
import { bundleForWeb } from "../support/web-bundle.ts";

test.each([
  ["lockstep/edge", "lockstep/edge"],
  ["lockstep", "./core/index.ts"],
  ["lockstep/inventory", "lockstep/inventory"],
  ["lockstep/steps", "./core/steps/index.ts"],
  ["lockstep/cloudflare", "lockstep/cloudflare"],
  ["the app over HTTP", "./functions/http/index.ts"],
])("%s needs no Node module", async (_, entry) => {
  const { code, foreign } = await bundleForWeb(`export * from "${entry}"`);
  expect(foreign).toEqual([]);
  expect(code.length).toBeGreaterThan(100);
});

test("the test notices an import from Node", async () => {
  const { foreign } = await bundleForWeb('export * from "./core/stores/etcd/index.ts"');
  expect(foreign).toContain("core/stores/node-fetch.ts imports node:events");
});

test("locks over the gateway take less than 60 kB", async () => {
  const locks = 'export { etcdLocks, etcdGatewayClient, lockedFetch } from "lockstep/edge"';
  const { code } = await bundleForWeb(locks);
  expect(code.length).toBeLessThan(60_000);
  expect(gzipSync(code).length).toBeLessThan(22_000);
});

test("locks and stock in Redis over HTTP take less than 72 kB, and bring nothing of etcd", async () => {
  const { code } = await bundleForWeb('export { openRedisRest } from "lockstep/edge"');
  expect(code.length).toBeLessThan(72_000);
  expect(gzipSync(code).length).toBeLessThan(26_000);
  expect(code).not.toContain("/v3/");
});

test("locks, stock and runs in DynamoDB take less than 129 kB, and bring nothing of etcd", async () => {
  const { code } = await bundleForWeb('export { dynamodbStore } from "lockstep/edge"');
  expect(code.length).toBeLessThan(129_000);
  expect(gzipSync(code).length).toBeLessThan(47_000);
  expect(code).not.toContain("/v3/");
});

test("a Worker with its Durable Object takes less than 240 kB", async () => {
  const { code } = await bundleForWeb('export * from "lockstep/cloudflare"');
  expect(code.length).toBeLessThan(240_000);
  expect(gzipSync(code).length).toBeLessThan(80_000);
});
