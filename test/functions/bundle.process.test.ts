import { fork } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, expect, test } from "vitest";
import { bundle } from "../../infra/aws/bundle.ts";
import { bundled } from "../bench/cold-start.ts";

let folder: string;

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "lockstep-bundles-"));
});

afterAll(() => rm(folder, { recursive: true, force: true }));

/** The modules that a function loads before its first event, minified. */
async function bytesOf(module: string): Promise<number> {
  const path = fileURLToPath(new URL(`../../${module}`, import.meta.url));
  const { loaded } = await bundled({ name: module, path }, join(folder, module));
  return loaded.atImport.bytes;
}

// A function that loads nothing has been measured wrongly.
test.each([
  ["core and etcd's gateway", "test/bench/cold/gateway.ts", 30_000, 63_000],
  // All of zod, with its messages in every language, are 470,000.
  ["the function for HTTP", "functions/aws/http.ts", 150_000, 370_000],
  ["the function for a queue", "functions/aws/queue.ts", 80_000, 225_000],
  ["the function for stock", "functions/aws/stock.ts", 40_000, 108_000],
  ["the function for a schedule", "functions/aws/schedule.ts", 80_000, 218_000],
  ["the sweep", "functions/aws/sweep.ts", 80_000, 219_000],
])("%s is no larger than it has to be", async (_, module, least, most) => {
  const bytes = await bytesOf(module);
  expect(bytes).toBeGreaterThan(least);
  expect(bytes).toBeLessThan(most);
});

test("the function for HTTP answers without loading Node's fetch", async () => {
  const script = fileURLToPath(new URL("../scripts/cold-request.ts", import.meta.url));
  const path = fileURLToPath(new URL("../../functions/aws/http.ts", import.meta.url));
  await bundle(path, join(folder, "http"));
  const token = "token-of-everything";
  const child = fork(script, [`file://${folder}/http/index.js`, token], {
    env: {
      ...process.env,
      LOCKSTEP_STORE: `sqlite:${join(folder, "shop.db")}`,
      LOCKSTEP_TOKEN: token,
    },
    stdio: ["ignore", "ignore", "inherit", "ipc"],
  });
  const [{ statusCode, loaded }] = await once(child, "message");
  expect(statusCode).toBe(200);
  const heavy = (loaded as readonly string[]).filter((name) => /undici|_http_client/.test(name));
  expect(heavy).toEqual([]);
});
