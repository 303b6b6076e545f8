import { fileURLToPath } from "node:url";
import { build } from "esbuild";
import { Miniflare } from "miniflare";
import { expect, inject, onTestFinished, test } from "vitest";
import { migrate, openMysql } from "../../core/stores/mysql/index.ts";
import { temporaryDatabase } from "../support/under-test.ts";

const PROGRAM = fileURLToPath(new URL("../programs/edge-mysql.ts", import.meta.url));

test("a Worker with nodejs_compat sells what there is in MySQL, over TCP", async () => {
  const [server] = inject("sqlServers");
  if (!server) throw new Error("no SQL server is running");
  const { options, drop } = await temporaryDatabase(server);
  await using shop = await openMysql(options);
  await migrate(shop.database);
  await shop.inventory.set({ sku: "teapot", quantity: 5, operationId: "count" });
  const { outputFiles } = await build({
    entryPoints: [PROGRAM],
    bundle: true,
    format: "esm",
    platform: "node",
    target: "es2024",
    write: false,
  });
  const worker = new Miniflare({
    modules: [{ type: "ESModule", path: "worker.mjs", contents: outputFiles[0]?.text ?? "" }],
    bindings: { MYSQL: options },
    compatibilityDate: "2026-07-01",
    compatibilityFlags: ["nodejs_compat"],
  });
  onTestFinished(() => worker.dispose());
  const answers = await Promise.all(
    Array.from({ length: 8 }, async (_, i) => {
      const answer = await worker.dispatchFetch(`http://shop.test/?id=order-${i}`);
      if (!answer.ok) throw new Error(await answer.text());
      return ((await answer.json()) as { outcome: string }).outcome;
    }),
  );
  expect(answers.filter((outcome) => outcome === "applied")).toHaveLength(5);
  expect(await shop.inventory.get("teapot")).toMatchObject({ onHand: 0, sold: 5 });
  await shop.close();
  await drop();
});
