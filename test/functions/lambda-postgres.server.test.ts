import { describe, expect, inject, test } from "vitest";
import { z } from "zod";
import { createRuntime, workflow } from "../../core/steps/index.ts";
import { openPostgres } from "../../core/stores/postgres/index.ts";
import {
  lockedHandler,
  migrateHandler,
  queueHandler,
  rdsOptions,
  stockHandler,
  sweepHandler,
  withSecret,
} from "../../functions/lambda/index.ts";
import { eventOf, within } from "../support/queue-handlers.ts";
import { SECRET_ARN, secretsManager } from "../support/secrets-manager.ts";
import { temporaryDatabase } from "../support/under-test.ts";
import { until } from "../support/until.ts";

describe.each(inject("postgresServers"))("functions on $name", (server) => {
  test("open the database of a secret of RDS, make its tables, sell once, lock and continue runs", async () => {
    const { options, drop } = await temporaryDatabase(server);
    const { host, port, user, database } = options;
    const login = { engine: "postgres", host, port, username: user, dbname: database };
    const secret = JSON.stringify({ ...login, password: "not-asked-for" });
    using _ = await secretsManager((_request, response) => {
      response.end(JSON.stringify({ SecretString: secret }));
    });
    const shop = withSecret(SECRET_ARN, (json) =>
      openPostgres({ ...rdsOptions(json), connections: 2 }),
    );
    const { applied } = await migrateHandler(shop)();
    expect(applied.length).toBeGreaterThan(0);
    const { inventory, locks, journal } = await shop();
    await inventory.set({ sku: "cup", quantity: 1, operationId: "count" });

    const answers: string[] = [];
    const sales = stockHandler(shop, {
      onAnswer: async ({ orderId, outcome, replayed }) =>
        answers.push(`${orderId} ${outcome}${replayed ? " again" : ""}`),
    });
    const orders = ["a", "b"].map((orderId) => ({ orderId, sku: "cup" }));
    for (let delivery = 1; delivery <= 2; delivery += 1) {
      expect(await sales(eventOf(orders), within())).toEqual({ batchItemFailures: [] });
    }
    expect(answers.toSorted()).toEqual([
      "a applied",
      "a applied again",
      "b sold-out",
      "b sold-out again",
    ]);

    const report = lockedHandler(
      async () => locks,
      { name: "report" },
      async (_event: object, lock) => typeof lock.fence,
    );
    expect(await report({}, within())).toBe("object");

    const input = z.object({ id: z.string() });
    const ship = workflow(
      { name: "ship", version: 1, input, id: ({ id }) => id },
      async (ctx, { id }) => {
        await ctx.sleep("the carrier", "2s");
        return ctx.step("ship", async () => `shipped ${id}`);
      },
    );
    const runtime = createRuntime({ journal, locks, workflows: [ship] });
    const take = queueHandler(runtime, ship, { parked: "leave" });
    expect(await take(eventOf([{ id: "a" }]), within())).toEqual({ batchItemFailures: [] });
    const sweep = sweepHandler(runtime);
    await until(async () => {
      await sweep({}, within());
      return (await journal.show("a"))?.status === "completed";
    });
    await (await shop()).close();
    await drop();
  });
});
