import { gzipSync } from "node:zlib";
import { expect, test } from "vitest";
import { bundleForWeb } from "../support/web-bundle.ts";

test.each([
  ["lockstep/edge", "lockstep/edge"],
  ["lockstep", "./core/index.ts"],
  ["lockstep/steps", "./core/steps/index.ts"],
  ["the app over HTTP", "./functions/http/index.ts"],
])("%s needs no module of Node's", async (_, entry) => {
  const { code, foreign } = await bundleForWeb(`export * from "${entry}"`);
  expect(foreign).toEqual([]);
  expect(code.length).toBeGreaterThan(10_000);
});

test("what is taken from Node would be noticed", async () => {
  const { foreign } = await bundleForWeb('export * from "./core/stores/etcd/index.ts"');
  expect(foreign).toContain("core/etcd/node-fetch.ts imports node:events");
});

test("locks over the gateway take less than 60 kB", async () => {
  const locks = 'export { etcdStore, openEtcdGateway, withLock } from "lockstep/edge"';
  const { code } = await bundleForWeb(locks);
  expect(code.length).toBeLessThan(60_000);
  expect(gzipSync(code).length).toBeLessThan(20_000);
});
