import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import type { StockResult } from "../../core/inventory/inventory.ts";
import { migrate } from "../../core/stores/sql/migrate.ts";
import { open } from "../../infra/open.ts";
import type { Server } from "../../infra/servers/server.ts";
import { startServer } from "../../infra/servers/start.ts";
import { known } from "../support/known.ts";
import { restart } from "../support/restart.ts";
import { runCli } from "../support/script.ts";
import { pause, until } from "../support/until.ts";

/** A ttl that no restart of a server on a busy machine outlasts. */
const TTL = 120_000;

/** The outages that a SQL server with durable commits survives without harm. */
export function describeSqlOutages(kind: "mariadb" | "postgres"): void {
  describe(`a ${kind} server that is killed`, () => {
    let server: Server;

    beforeAll(async () => {
      server = await startServer(kind);
      const { database, close } = await open(server.url);
      await migrate(database);
      await close();
    });

    afterAll(() => server.stop());

    test("keeps an acknowledged lock, and its waiters get the lock in the end", async () => {
      const [ours, theirs] = [await open(server.url), await open(server.url)];
      const lock = await ours.locks.lock("a", { ttl: TTL, wait: TTL });
      const batch = vi.spyOn(theirs.database, "batch");
      const waiting = theirs.locks.lock("a", { ttl: TTL, wait: TTL });
      // A waiter without an answer would give up.
      await until(() => batch.mock.calls.length > 1);
      await restart(server);
      expect(await theirs.locks.tryLock("a", { ttl: TTL })).toBeUndefined();
      lock.assertHeld();
      await lock.ensure(TTL);
      expect(await lock.unlock()).toBe("released");
      const next = await waiting;
      expect(next.fence.token).toBeGreaterThan(lock.fence.token);
      await next.unlock();
      await ours.close();
      await theirs.close();
    });

    // A signal would freeze only one of PostgreSQL's processes.
    if (kind !== "postgres") {
      test("or frozen ends each holder's lock in time, and lets each process exit", async () => {
        const store = await open(server.url);
        const lock = await store.locks.lock("frozen", { ttl: 4_000, wait: 60_000 });
        const command = ["sh", "-c", "echo started; sleep 60"];
        const { url } = server;
        using holder = runCli("lock", "held", "--store", url, "--ttl", "9s", "--", ...command);
        expect(await holder.line()).toBe("started");
        const [node] = server.nodes;
        await node?.kill("SIGSTOP");
        try {
          await until(() => lock.signal.aborted);
          await store.close();
          expect(await holder.ended).toBe(76);
        } finally {
          await node?.kill("SIGCONT");
        }
      });
    }

    test("loses no acknowledged sale, and repeats none", () => sellThroughRestarts(server));
  });
}

/**
 * Sells while the server is killed and restarted. Its sales are then those that were acknowledged, each once.
 *
 * `isAcknowledged` tells which answers the server gives after its commit only. Default: all.
 */
export async function sellThroughRestarts(
  server: Server,
  isAcknowledged: (result: StockResult) => boolean = () => true,
): Promise<void> {
  const { inventory: stock, close } = await open(server.url);
  await known(() => stock.set({ sku: "a", quantity: 100_000, operationId: "set" }));
  const acknowledged = new Set<string>();
  let stop = false;
  const seller = async (number: number) => {
    for (let order = 0; !stop; order += 1) {
      const operationId = `${number}/${order}`;
      const change = { sku: "a", quantity: 1, operationId };
      // A sale that is not acknowledged is repeated under the same id.
      for (let sold = false; !sold && !stop; ) {
        sold = await stock.decrement(change).then(
          (result) => result.outcome === "applied" && isAcknowledged(result),
          (error) => {
            expect(["STORE_UNAVAILABLE", "UNKNOWN_OUTCOME"]).toContain(error.code);
            return false;
          },
        );
        if (sold) acknowledged.add(operationId);
        else await pause(20);
      }
    }
  };
  const sellers = [1, 2, 3, 4].map(seller);
  const sellMore = async () => {
    const goal = acknowledged.size + 20;
    await until(() => acknowledged.size >= goal);
  };
  await sellMore();
  for (let i = 0; i < 2; i += 1) {
    await restart(server);
    await sellMore();
  }
  stop = true;
  await Promise.all(sellers);
  const history = await known(() => stock.history("a", { limit: 10_000 }));
  const entries = history.filter(({ kind }) => kind === "decrement");
  const recorded = new Set(entries.map(({ operationId }) => operationId));
  for (const id of acknowledged) expect(recorded).toContain(id);
  expect(recorded.size).toBe(entries.length);
  expect(await known(() => stock.get("a"))).toMatchObject({
    sold: entries.length,
    onHand: 100_000 - entries.length,
  });
  await close();
}
