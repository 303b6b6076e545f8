import { fileURLToPath } from "node:url";
import { build } from "esbuild";
import { Miniflare } from "miniflare";
import { expect, inject, onTestFinished, test } from "vitest";
import { openMysql } from "../../core/stores/mysql/index.ts";
import { openPostgres } from "../../core/stores/postgres/index.ts";
import { migrate } from "../../core/stores/sql/migrate.ts";
import { temporaryDatabase } from "../support/under-test.ts";

/** Bundles a program for a Worker, and starts it. */
async function workerOf(program: string, bindings: Readonly<Record<string, object>>) {
  const { outputFiles } = await build({
    entryPoints: [fileURLToPath(new URL(`../programs/${program}`, import.meta.url))],
    bundle: true,
    format: "esm",
    platform: "node",
    target: "es2024",
    write: false,
  });
  const worker = new Miniflare({
    modules: [{ type: "ESModule", path: "worker.mjs", contents: outputFiles[0]?.text ?? "" }],
    bindings,
    compatibilityDate: "2026-07-01",
    compatibilityFlags: ["nodejs_compat"],
  });
  onTestFinished(() => worker.dispose());
  return worker;
}

test.each([
  ["MySQL", "edge-mysql.ts", inject("sqlServers"), openMysql],
  ["PostgreSQL", "edge-postgres.ts", inject("postgresServers"), openPostgres],
] as const)(
  "a Worker with nodejs_compat sells what there is in %s, over TCP, and ships each sale by a workflow",
  async (_, program, [server], open) => {
    if (!server) throw new Error("no SQL server is running");
    const { options, drop } = await temporaryDatabase(server);
    await using shop = await open(options);
    await migrate(shop.database);
    await shop.inventory.set({ sku: "teapot", quantity: 5, operationId: "count" });
    const worker = await workerOf(program, { DATABASE: options });
    const answers = await Promise.all(
      Array.from({ length: 8 }, async (_, i) => {
        const answer = await worker.dispatchFetch(`http://shop.test/?id=order-${i}`);
        if (!answer.ok) throw new Error(await answer.text());
        return (await answer.json()) as { readonly outcome: string; readonly run?: object };
      }),
    );
    const sales = answers.filter(({ outcome }) => outcome === "applied");
    expect(sales).toHaveLength(5);
    const output = expect.stringMatching(/^shipped order-\d$/);
    for (const { run } of sales) expect(run).toMatchObject({ status: "completed", output });
    expect(await shop.inventory.get("teapot")).toMatchObject({ onHand: 0, sold: 5 });
    await shop.close();
    await drop();
  },
);
