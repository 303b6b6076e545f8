import { realpath } from "node:fs/promises";
import { dirname, join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { stockLock } from "../../core/inventory/inventory.ts";
import { migrate } from "../../core/stores/sql/migrate.ts";
import { open } from "../../infra/open.ts";
import { findOrThrow } from "../../infra/servers/binaries.ts";
import { KINDS } from "../../infra/servers/kinds.ts";
import { run } from "../../infra/servers/processes.ts";
import { startServer } from "../../infra/servers/start.ts";
import { sqliteInventory } from "../support/inventory-under-test.ts";
import { TcpProxy } from "../support/tcp-proxy.ts";
import { connectTo } from "../support/under-test.ts";
import { until } from "../support/until.ts";

/** A ttl that no pause of a busy machine outlasts. */
const LONG = { ttl: 60_000, wait: 60_000 };

/** Starts a server with an asynchronous standby, whose connection to the server the wire can cut. */
async function startWithStandby() {
  const primary = await startServer("postgres");
  onTestFinished(() => primary.stop());
  const { port = 0, folder = "" } = primary.nodes[0]?.config ?? {};
  const wire = await TcpProxy.to(port);
  onTestFinished(() => wire.close());
  const data = join(folder, "standby");
  const from = ["-h", "127.0.0.1", "-p", String(wire.port), "-U", "postgres"];
  const binary = await realpath(await findOrThrow(KINDS.postgres, () => {}));
  const tool = join(dirname(binary), "pg_basebackup");
  await run(tool, [...from, "-D", data, "--write-recovery-conf", "--checkpoint=fast"]);
  if (process.getuid?.() === 0) await run("chown", ["-R", "postgres:", data]);
  const standby = await startServer("postgres", { args: ["-D", data] });
  onTestFinished(() => standby.stop());
  return { primary, standby, wire };
}

test("a standby grants no lock and sells nothing; promoted without the last writes, it issues a fence again, which the stock refuses until the generation is raised", async () => {
  const { primary, standby, wire } = await startWithStandby();
  const stock = await sqliteInventory();
  const { inventory, locks: stockLocks } = stock.open();
  await inventory.set({ sku: "teapot", quantity: 5, operationId: "first" });
  const before = await open(primary.url);
  await migrate(before.database);
  const after = await open(standby.url);
  const name = stockLock("teapot");
  const sell = async ({ locks }: typeof before, operationId: string) => {
    const lock = await locks.lock(name, LONG);
    const { fence } = lock;
    const sale = { sku: "teapot", quantity: 1, operationId, fence };
    return inventory.decrement(sale).finally(() => lock.unlock());
  };

  expect(await sell(before, "1")).toMatchObject({ outcome: "applied" });
  const replicated = () => after.locks.inspect(name).catch(() => undefined);
  const last = await before.locks.inspect(name);
  await until(async () => (await replicated())?.fence === last.fence);
  const readOnly = { code: "STORE_UNAVAILABLE", message: expect.stringContaining("read-only") };
  await expect(after.locks.lock(name, { ...LONG, wait: 0 })).rejects.toMatchObject(readOnly);
  const sale = { sku: "cup", quantity: 1, operationId: "2" };
  await expect(after.inventory.decrement(sale)).rejects.toMatchObject(readOnly);

  // The next holder's fence is never replicated.
  wire.cut();
  expect(await sell(before, "2")).toMatchObject({ outcome: "applied" });
  await primary.nodes[0]?.kill("SIGKILL");
  const admin = await connectTo(standby.url);
  await admin.query("SELECT pg_promote()");
  await admin.end();
  // The lock of the second holder was lost with its fence.
  await expect(sell(after, "3")).rejects.toMatchObject({ code: "FENCED_OUT" });
  expect(await after.locks.raiseGeneration()).toBe(1);
  expect(await sell(after, "3")).toMatchObject({ outcome: "applied" });
  expect(await inventory.get("teapot")).toMatchObject({ onHand: 2, sold: 3 });
  await before.close();
  await after.close();
  await stockLocks.close();
  await stock.close();
});
