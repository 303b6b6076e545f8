import { afterAll, beforeAll, describe, expect, inject, test } from "vitest";
import { openMysql } from "../../core/database/mysql.ts";
import { type Database, sql } from "../../core/database/sql.ts";
import { stockLock } from "../../core/inventory/inventory.ts";
import { sqlInventory } from "../../core/inventory/sql.ts";
import type { Journal, RunKey } from "../../core/journal/journal.ts";
import { sqlJournal } from "../../core/journal/sql.ts";
import { memoryStore } from "../../core/stores/memory/index.ts";
import { migrate } from "../../infra/migrate.ts";
import { open } from "../../infra/open.ts";
import { type Server, startServer } from "../../infra/servers/start.ts";
import { expectRejection } from "../support/rejection.ts";
import { claimed, claimOf, DONE, newRunId, record, running } from "../support/runs.ts";
import { TcpProxy } from "../support/tcp-proxy.ts";
import { temporaryDatabase } from "../support/under-test.ts";
import { pause, until } from "../support/until.ts";

const table = sql`CREATE TABLE effect (name VARCHAR(64) NOT NULL)`;

async function effects(database: Database, name: string): Promise<number> {
  const rows = await database.read(sql`SELECT COUNT(*) AS n FROM effect WHERE name = ${name}`);
  return Number(rows[0]?.n);
}

/** A step that leaves a row, in a transaction. */
function transact(journal: Journal, run: RunKey, key: string, before = async () => {}) {
  if (!journal.transact) throw new Error("no transactions");
  return journal.transact(run, { key, fences: [] }, async (tx) => {
    await tx.packet([sql`INSERT INTO effect (name) VALUES (${`${run.runId} ${key}`})`]);
    await before();
    return record(key, { kind: "tx" });
  });
}

for (const server of inject("sqlServers")) {
  describe.concurrent(`a connection to ${server.name} that is cut in place of an answer`, () => {
    let drop: () => Promise<void>;
    let admin: Database;
    let proxy: TcpProxy;
    let database: Database;
    let journal: Journal;

    beforeAll(async () => {
      const own = await temporaryDatabase(server);
      drop = own.drop;
      admin = openMysql(own.options);
      await migrate(admin);
      await admin.packet([table]);
      proxy = await TcpProxy.to(own.options.port);
      database = openMysql({ ...own.options, port: proxy.port });
      journal = sqlJournal(database);
    });

    afterAll(async () => {
      await database.close();
      await proxy.close();
      await admin.close();
      await drop();
    });

    // One after the other: there is one wire.
    test("leaves every write done once, and nothing of a holder that is late", async () => {
      const losing = async <T>(call: () => Promise<T>): Promise<T> => {
        // So that it is the answer to the call that is lost, not one to a handshake.
        await database.read(sql`SELECT 1`);
        proxy.loseNextAnswer();
        return call();
      };
      const ours = sqlJournal(admin);
      // A cut may come before, between or after the statements of a packet: so many times.
      for (let i = 0; i < 15; i += 1) {
        const claim = claimOf(newRunId());
        const run = { runId: claim.runId, ...(await losing(() => claimed(journal, claim))) };
        const child = await running(ours, { parent: { runId: run.runId, signal: "child" } });
        await losing(() => journal.append(run, record("a")));
        await losing(() => transact(journal, run, "b"));
        const committing = async () => proxy.loseNextAnswer();
        await transact(journal, run, "c", committing);
        await losing(() => journal.append(run, record("d")));
        const parking = { reason: "child", wakeIn: Number.POSITIVE_INFINITY } as const;
        await losing(() => journal.park(run, { ...parking, signalsSeen: 0 }));
        await losing(() => journal.finish(child, DONE));
        const signal = { name: "a", dedupeId: "1", payload: "" };
        await losing(() => journal.signal(run.runId, signal));
        const taken = await losing(() => journal.take(claim));
        expect(taken).toMatchObject({ kind: "claimed", epoch: run.epoch + 1n, crashes: 0 });
        await losing(() => journal.finish({ ...run, epoch: run.epoch + 1n }, DONE));
        const shown = await ours.show(run.runId);
        expect(shown).toMatchObject({ status: "completed", epoch: run.epoch + 1n });
        expect(shown?.records.map(({ key }) => key)).toEqual(["a", "b", "c", "d"]);
        expect(shown?.signals.map(({ name }) => name)).toEqual(["child", "a"]);
        for (const key of ["b", "c"]) expect(await effects(admin, `${run.runId} ${key}`)).toBe(1);

        const late = await running(ours, { ttl: 1 });
        const overtaken = transact(journal, late, "a", async () => {
          await until(async () => (await ours.take(claimOf(late.runId))).kind === "claimed");
          // The refusal of the record does not arrive, nor may the COMMIT behind it be done.
          proxy.loseNextAnswer();
        });
        await expectRejection(overtaken, { code: "STALE_RUN" });
        expect(await effects(admin, `${late.runId} a`)).toBe(0);
      }
    }, 120_000);
  });
}

describe("a server that is killed", () => {
  let server: Server;
  let database: Database;

  // Not strict about what columns may hold, and with small packets: nothing here may rest on either.
  beforeAll(async () => {
    server = await startServer("mysql", { args: ["--sql-mode=", "--max-allowed-packet=1M"] });
    const opened = await open(server.url);
    if (!opened.database) throw new Error("no database");
    database = opened.database;
    await migrate(database);
    await database.packet([table]);
  });

  afterAll(async () => {
    await database.close();
    await server.stop();
  });

  const restart = async () => {
    const [node] = server.nodes;
    await node?.kill("SIGKILL");
    await pause(300);
    await node?.start();
  };

  test("loses no acknowledged record, and does no step twice", async () => {
    const journal = sqlJournal(database);
    const stock = sqlInventory(database);
    await using locks = memoryStore();
    await stock.set({ sku: "a", quantity: 100_000, operationId: "set" });
    await using lock = await locks.lock(stockLock("a"), { ttl: 80_000, wait: 0 });
    const { fence } = lock;
    let stop = false;
    const insisting = async <T>(call: () => Promise<T>): Promise<T> => {
      for (;;) {
        try {
          return await call();
        } catch (error) {
          expect(error).toMatchObject({ retryable: true });
          await pause(20);
        }
      }
    };
    const carry = async () => {
      const run = await running(journal, { ttl: 600_000 });
      const acknowledged: string[] = [];
      for (let i = 0; !stop; i += 1) {
        await insisting(() => journal.append(run, record(`${i} plain`)));
        await insisting(async () =>
          journal.transact?.(run, { key: `${i} tx`, fences: [fence] }, async (tx) => {
            const operationId = `${run.runId} ${i}`;
            await stock.within(tx).decrement({ sku: "a", quantity: 1, operationId, fence });
            await tx.packet([sql`INSERT INTO effect (name) VALUES (${operationId})`]);
            return record(`${i} tx`, { kind: "tx" });
          }),
        );
        acknowledged.push(`${i} plain`, `${i} tx`);
      }
      await insisting(() => journal.finish(run, DONE));
      const shown = await journal.show(run.runId);
      expect(shown?.records.map(({ key }) => key)).toEqual(acknowledged);
      expect(shown).toMatchObject({ status: "completed", epoch: run.epoch });
      for (let i = 0; i < acknowledged.length / 2; i += 1) {
        expect(await effects(database, `${run.runId} ${i}`)).toBe(1);
      }
      return acknowledged.length / 2;
    };
    const carriers = [carry(), carry(), carry()];
    for (let i = 0; i < 2; i += 1) {
      await pause(400);
      await restart();
    }
    await pause(400);
    stop = true;
    const steps = (await Promise.all(carriers)).reduce((sum, one) => sum + one, 0);
    expect(steps).toBeGreaterThan(20);
    expect(await stock.get("a")).toMatchObject({ sold: steps, onHand: 100_000 - steps });
  }, 90_000);

  test("when it comes back refuses a holder that has lost its run meanwhile", async () => {
    const journal = sqlJournal(database);
    const late = await running(journal, { ttl: 1 });
    await restart();
    const next = await until(async () => {
      const answer = await journal.take(claimOf(late.runId)).catch(() => undefined);
      return answer?.kind === "claimed" && answer;
    });
    expect(next.epoch).toBe(late.epoch + 1n);
    await expect(transact(journal, late, "a")).rejects.toMatchObject({ code: "STALE_RUN" });
    await expect(journal.append(late, record("a"))).rejects.toMatchObject({ code: "STALE_RUN" });
    expect(await effects(database, `${late.runId} a`)).toBe(0);
  }, 60_000);

  test("or takes no packet of that size says so, and nothing has happened", async () => {
    const journal = sqlJournal(database);
    const run = await running(journal);
    const large = record("large", { value: "x".repeat(2 ** 20) });
    await expect(journal.append(run, large)).rejects.toMatchObject({
      code: "STORE_REFUSED",
      retryable: false,
      message: expect.stringContaining("max_allowed_packet"),
    });
    expect((await journal.show(run.runId))?.records).toEqual([]);
  });
});
