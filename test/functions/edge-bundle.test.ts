import { gzipSync } from "node:zlib";
import { expect, test } from "vitest";
import { pageAt } from "../support/docs.ts";
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

/** The bytes by which bundles of the compiled package are larger: its helpers are those of tslib. Compressed, 200. */
const HELPERS = 1_500;

/** What a bundle exports, its limits in kB, minified and compressed, and the page that tells them. */
const SIZES: readonly (readonly [string, number, number, string])[] = [
  ['{ etcdLocks, etcdGatewayClient, lockedFetch } from "lockstep/edge"', 70, 25, "docs/edge.md"],
  ['{ lockedFetch, etcdInventory } from "lockstep/edge"', 96, 36, "docs/edge.md"],
  ['{ openRedisRest } from "lockstep/edge"', 81, 29, "docs/edge.md"],
  ['{ dynamodbStore } from "lockstep/edge"', 144, 52, "docs/stores/dynamodb.md"],
  ['* from "lockstep/cloudflare"', 275, 94, "docs/stores/cloudflare.md"],
];

test.each(SIZES)("%s takes less than %i kB, compressed %i, as its page says", async (...size) => {
  const [exported, most, compressed, page] = size;
  const { code } = await bundleForWeb(`export ${exported}`);
  expect(code.length + HELPERS).toBeLessThan(most * 1_000);
  expect(gzipSync(code).length + 200).toBeLessThan(compressed * 1_000);
  expect(pageAt(page)).toContain(`less than ${most} kB (compressed ${compressed})`);
});

test.each(["openRedisRest", "dynamodbStore"])("%s brings nothing of etcd", async (name) => {
  const { code } = await bundleForWeb(`export { ${name} } from "lockstep/edge"`);
  expect(code).not.toContain("/v3/");
});
