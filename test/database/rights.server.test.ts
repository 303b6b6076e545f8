import { describe, expect, inject, test } from "vitest";
import { z } from "zod";
import { stockLock } from "../../core/inventory/inventory.ts";
import { createRuntime } from "../../core/steps/runtime.ts";
import { workflow } from "../../core/steps/workflow.ts";
import { openMysql } from "../../core/stores/mysql/index.ts";
import { openPostgres } from "../../core/stores/postgres/index.ts";
import { cli } from "../support/cli.ts";
import { blocksOf, pageAt } from "../support/docs.ts";
import { connectTo, temporaryDatabase } from "../support/under-test.ts";

const [onMysql = "", onPostgres = ""] = blocksOf(pageAt("docs/operations.md"), "sql");
const [mariadb] = inject("sqlServers");
const [postgres] = inject("postgresServers");

describe.each([
  { name: "MySQL", server: mariadb, grants: onMysql, open: openMysql },
  { name: "PostgreSQL", server: postgres, grants: onPostgres, open: openPostgres },
])("the rights that the runbook grants on $name", ({ server, grants, open }) => {
  test("are enough for locks, stock and workflows, and not for a change of tables", async () => {
    if (!server) throw new Error("the server is missing");
    const database = await temporaryDatabase(server);
    await cli("migrate", "--store", database.url);
    const { database: name } = database.options;
    const password = "change-me";
    const user = `${name}_app`;
    const admin = await connectTo(database.url);
    for (const line of grants.trim().split("\n")) {
      await admin.query(line.replaceAll("shop_app", user).replace("shop.*", `${name}.*`));
    }
    await admin.end();
    const url = new URL(database.url);
    Object.assign(url, { username: user, password });

    const doctor = await cli("doctor", url.href, "--json");
    expect(JSON.parse(doctor.stdout)).toContainEqual(
      expect.objectContaining({ check: "privileges", status: "ok" }),
    );
    const shop = await open({ ...database.options, user, password });
    const { inventory, journal, locks } = shop;
    await inventory.set({ sku: "cup", quantity: 2, operationId: "count" });
    const options = { ttl: "30s", wait: "30s" } as const;
    await locks.withLock(stockLock("cup"), options, async ({ fence }) => {
      await inventory.decrement({ sku: "cup", quantity: 1, operationId: "order-1", fence });
    });
    const sell = workflow({ name: "sell", version: 1, input: z.null() }, (ctx) =>
      ctx.step.tx("sell", { lock: stockLock("cup") }, async ({ tx, fence, idempotencyKey }) => {
        const order = { sku: "cup", quantity: 1, operationId: idempotencyKey, fence };
        return (await inventory.within(tx).decrement(order)).remaining;
      }),
    );
    const runtime = createRuntime({ journal, locks });
    expect(await runtime.run(sell, null, { id: "order-2" })).toMatchObject({ output: 0 });
    await shop.close();

    const own = await connectTo(url.href);
    await expect(own.query("DROP TABLE lockstep_lock")).rejects.toThrow(/denied|owner/);
    await own.end();
    await database.drop();
  });
});
