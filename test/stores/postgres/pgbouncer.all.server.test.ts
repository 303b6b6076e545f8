import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { z } from "zod";
import { sql } from "../../../core/database/sql.ts";
import { stockLock } from "../../../core/inventory/inventory.ts";
import { createRuntime } from "../../../core/steps/runtime.ts";
import { workflow } from "../../../core/steps/workflow.ts";
import { migrate } from "../../../core/stores/sql/migrate.ts";
import type { Server } from "../../../infra/servers/server.ts";
import { startServer } from "../../../infra/servers/start.ts";
import { describeElections } from "../../conformance/elections.ts";
import { describeInventory } from "../../conformance/inventory.ts";
import { describeJournal } from "../../conformance/journal.ts";
import { describeLockStore } from "../../conformance/lock-store.ts";
import { describeStepTransactions } from "../../conformance/steps/transactions.ts";
import { describeSteps } from "../../conformance/steps.ts";
import { describeTransactions } from "../../conformance/transactions.ts";
import { sqlServerInventory } from "../../support/inventory-under-test.ts";
import { sqlServerJournal } from "../../support/journal-under-test.ts";
import { EVERY_VERSION } from "../../support/matrix.ts";
import { sqlServerSteps } from "../../support/steps-under-test.ts";
import { TcpProxy } from "../../support/tcp-proxy.ts";
import { sqlServerUnderTest, temporaryDatabase } from "../../support/under-test.ts";
import { until } from "../../support/until.ts";

describe("through PgBouncer in transaction mode", () => {
  let server: Server;

  beforeAll(async () => {
    server = await startServer("pgbouncer");
  });

  afterAll(() => server.stop());

  describeLockStore("pgbouncer", () => sqlServerUnderTest(server));
  describeInventory("pgbouncer", () => sqlServerInventory(server));
  describeElections("pgbouncer", () => sqlServerUnderTest(server));
  // A test below has the thin slice: a run with a step in a transaction.
  if (EVERY_VERSION) {
    describeJournal("pgbouncer", () => sqlServerJournal(server));
    describeTransactions("pgbouncer", () => sqlServerJournal(server));
    describeSteps("pgbouncer", () => sqlServerSteps(server));
    describeStepTransactions("pgbouncer", () => sqlServerSteps(server));
  }

  test("a worker executes a run with a transacted step", async () => {
    const under = await sqlServerJournal(server);
    const { journal, locks, inventory, close } = under.open();
    await inventory?.set({ sku: "teapot", quantity: 2, operationId: "first" });
    const sale = workflow({ name: "sale", version: 1, input: z.string() }, async ({ step }, sku) =>
      step.tx("take", { lock: stockLock(sku) }, async ({ tx, fence, idempotencyKey }) => {
        const stock = inventory?.within(tx);
        await stock?.decrement({ sku, quantity: 1, operationId: idempotencyKey, fence });
      }),
    );
    const runtime = createRuntime({ journal, locks, workflows: [sale] });
    await runtime.start(sale, "teapot", { id: "a" });
    const [due] = await runtime.claimDue({ limit: 1 });
    expect(await due?.execute()).toMatchObject({ status: "completed" });
    expect(await inventory?.get("teapot")).toMatchObject({ onHand: 1, sold: 1 });
    await close();
    await under.close();
  });

  test("nobody listens in a session of the pooler's, so waiters poll", async () => {
    const { open, drop, options } = await temporaryDatabase(server);
    await using proxy = await TcpProxy.to(options.port);
    const database = open({ port: proxy.port });
    const heard: (string | undefined)[] = [];
    database.notices?.listen("calls", (text) => heard.push(text));
    // The first connection was useless.
    await until(() => proxy.connections > 1);
    expect(database.notices?.isActive("calls")).toBe(false);
    expect(heard).toEqual([]);
    await database.close();
    await until(() => proxy.open === 0);
    await drop();
  });

  test("a statement that was given up is cancelled, and no statement of another client", async () => {
    const { open, drop } = await temporaryDatabase(server);
    const database = open({ connections: 3 });
    const other = open();
    await migrate(other);
    const sleeping = async () => {
      const [row] = await other.read(sql`
        SELECT COUNT(*) AS n FROM pg_stat_activity
        WHERE datname = current_database() AND pid <> pg_backend_pid() AND query LIKE ${"%'given up'%"}
          AND state <> 'idle'`);
      return Number(row?.n);
    };
    const given = new AbortController();
    const settled = Promise.allSettled(
      Array.from({ length: 3 }, () =>
        database.batch([sql`SELECT 'given up', pg_sleep(600)`], given.signal),
      ),
    );
    await until(async () => (await sleeping()) === 3);
    given.abort(new Error("enough"));
    for (const { status } of await settled) expect(status).toBe("rejected");
    const one = sql`SELECT 1 AS one`;
    await until(async () => {
      // On the connections to the server that the cancelled statements leave.
      await Promise.all(Array.from({ length: 10 }, () => other.batch([one])));
      return (await sleeping()) === 0;
    });
    expect((await database.batch([one]))[0]?.rows).toEqual([{ one: 1 }]);
    await database.close();
    await other.close();
    await drop();
  });
});
