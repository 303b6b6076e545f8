import { afterAll, beforeAll, describe, expect, inject, test } from "vitest";
import { type Database, sql } from "../../core/database/sql.ts";
import { stockLock } from "../../core/inventory/inventory.ts";
import type { Journal } from "../../core/journal/journal.ts";
import type { RunKey } from "../../core/journal/runs.ts";
import { memoryLocks } from "../../core/stores/memory/locks.ts";
import { sqlInventory } from "../../core/stores/sql/inventory/index.ts";
import { sqlJournal } from "../../core/stores/sql/journal/index.ts";
import { migrate } from "../../core/stores/sql/migrate.ts";
import { open } from "../../infra/open.ts";
import type { Server } from "../../infra/servers/server.ts";
import { startServer } from "../../infra/servers/start.ts";
import { expectRejection } from "../support/rejection.ts";
import { restart } from "../support/restart.ts";
import { claimed, claimOf, DONE, newRunId, record, running } from "../support/runs.ts";
import { TcpProxy } from "../support/tcp-proxy.ts";
import { temporaryDatabase } from "../support/under-test.ts";
import { pause, until } from "../support/until.ts";

const table = sql`CREATE TABLE effect (name VARCHAR(64) NOT NULL)`;

async function effects(database: Database, name: string): Promise<number> {
  const rows = await database.read(sql`SELECT COUNT(*) AS n FROM effect WHERE name = ${name}`);
  return Number(rows[0]?.n);
}

/** A step that inserts a row in a transaction. */
function transact(journal: Journal, run: RunKey, key: string, before = async () => {}) {
  if (!journal.transact) throw new Error("no transactions");
  return journal.transact(run, { key, fences: [] }, async (tx) => {
    await tx.batch([sql`INSERT INTO effect (name) VALUES (${`${run.runId} ${key}`})`]);
    await before();
    return record(key, { kind: "tx" });
  });
}

for (const server of [...inject("sqlServers"), ...inject("postgresServers")]) {
  describe.concurrent(`a connection to ${server.name} that is cut in place of an answer`, () => {
    let drop: () => Promise<void>;
    let admin: Database;
    let proxy: TcpProxy;
    let database: Database;
    let journal: Journal;

    beforeAll(async () => {
      const own = await temporaryDatabase(server);
      drop = own.drop;
      admin = own.open();
      await migrate(admin);
      await admin.batch([table]);
      proxy = await TcpProxy.to(own.options.port);
      database = own.open({ port: proxy.port });
      journal = sqlJournal(database);
    });

    afterAll(async () => {
      await database.close();
      await proxy.close();
      await admin.close();
      await drop();
    });

    // One after the other: the tests share one proxy.
    test("leaves each write done once, and no write of a late holder", async () => {
      const losing = async <T>(call: () => Promise<T>): Promise<T> => {
        // The handshake is done first, so that the answer to the call is lost.
        await database.read(sql`SELECT 1`);
        proxy.loseNextAnswer();
        return call();
      };
      const ours = sqlJournal(admin);
      // The repetitions hit points before, between and after the statements of a batch.
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

        const origin = { ...run, epoch: run.epoch + 1n };
        const mark = record("~fork/1", { kind: "fork" });
        const copies = { keep: ["a"], supersede: ["b"], signals: [2], mark };
        const fork = { runId: newRunId(), owner: "a tester", step: "c", ...copies };
        expect(await losing(() => journal.fork(origin, fork))).toBe("forked");
        const forked = await claimed(ours, claimOf(fork.runId));
        const keys = ["a", `~old/${origin.epoch}/b`, "~fork/1"];
        expect(forked.records.map(({ key }) => key)).toEqual(keys);
        expect(forked.signals.map(({ name }) => name)).toEqual(["a"]);

        const long = await running(ours);
        await ours.append(long, record("a"));
        await ours.signal(long.runId, signal);
        const next = { part: 1, input: '"next"', received: [1] };
        expect(await losing(() => journal.continueAsNew(long, next))).toBe("continued");
        const second = await claimed(ours, long.claim);
        expect(second).toMatchObject({ part: 2, input: '"next"', records: [], signals: [] });
        const ofSecond = { runId: long.runId, epoch: second.epoch };
        await losing(() => journal.append(ofSecond, record("a", { value: "x".repeat(2 ** 21) })));
        expect((await ours.show(long.runId))?.records).toMatchObject([{ valueBytes: 2 ** 21 }]);

        const late = await running(ours, { ttl: 1 });
        const overtaken = transact(journal, late, "a", async () => {
          await until(async () => (await ours.take(claimOf(late.runId))).kind === "claimed");
          // The answer to the refused record is lost, and the COMMIT after it must not happen.
          proxy.loseNextAnswer();
        });
        await expectRejection(overtaken, { code: "STALE_RUN" });
        expect(await effects(admin, `${late.runId} a`)).toBe(0);
      }
    });
  });
}

// On MariaDB, a lenient SQL mode and small packets: the journal must not depend on the server's settings.
describe.each([
  { kind: "mariadb", args: ["--sql-mode=", "--max-allowed-packet=1M"] },
  { kind: "postgres", args: [] },
] as const)("a $kind server that is killed", ({ kind, args }) => {
  let server: Server;
  let database: Database;

  beforeAll(async () => {
    server = await startServer(kind, { args });
    const opened = await open(server.url);
    database = opened.database;
    await migrate(database);
    await database.batch([table]);
  });

  afterAll(async () => {
    await database.close();
    await server.stop();
  });

  test("loses no acknowledged record, and repeats no step", async () => {
    const journal = sqlJournal(database);
    const stock = sqlInventory(database);
    await using locks = memoryLocks();
    await stock.set({ sku: "a", quantity: 100_000, operationId: "set" });
    await using lock = await locks.lock(stockLock("a"), { ttl: 80_000, wait: 0 });
    const { fence } = lock;
    let stop = false;
    let carried = 0;
    const retrying = async <T>(call: () => Promise<T>): Promise<T> => {
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
        await retrying(() => journal.append(run, record(`${i} plain`)));
        await retrying(async () =>
          journal.transact?.(run, { key: `${i} tx`, fences: [fence] }, async (tx) => {
            const operationId = `${run.runId} ${i}`;
            await stock.within(tx).decrement({ sku: "a", quantity: 1, operationId, fence });
            await tx.batch([sql`INSERT INTO effect (name) VALUES (${operationId})`]);
            return record(`${i} tx`, { kind: "tx" });
          }),
        );
        acknowledged.push(`${i} plain`, `${i} tx`);
        carried += 1;
      }
      await retrying(() => journal.finish(run, DONE));
      const shown = await journal.show(run.runId);
      expect(shown?.records.map(({ key }) => key)).toEqual(acknowledged);
      expect(shown).toMatchObject({ status: "completed", epoch: run.epoch });
      for (let i = 0; i < acknowledged.length / 2; i += 1) {
        expect(await effects(database, `${run.runId} ${i}`)).toBe(1);
      }
      return acknowledged.length / 2;
    };
    const carriers = [carry(), carry(), carry()];
    for (const before of [10, 20]) {
      await until(() => carried > before);
      await restart(server);
    }
    await until(() => carried > 30);
    stop = true;
    const steps = (await Promise.all(carriers)).reduce((sum, one) => sum + one, 0);
    expect(await stock.get("a")).toMatchObject({ sold: steps, onHand: 100_000 - steps });
  });

  test("refuses, after its restart, a holder that has lost its run meanwhile", async () => {
    const journal = sqlJournal(database);
    const late = await running(journal, { ttl: 1 });
    await restart(server);
    const next = await until(async () => {
      const answer = await journal.take(claimOf(late.runId)).catch(() => undefined);
      return answer?.kind === "claimed" && answer;
    });
    expect(next.epoch).toBe(late.epoch + 1n);
    await expect(transact(journal, late, "a")).rejects.toMatchObject({ code: "STALE_RUN" });
    await expect(journal.append(late, record("a"))).rejects.toMatchObject({ code: "STALE_RUN" });
    expect(await effects(database, `${late.runId} a`)).toBe(0);
  });

  // PostgreSQL has no such limit.
  if (kind === "mariadb") {
    test("refuses a packet above its limit with an error that names the limit, and changes nothing", async () => {
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
  }
});
