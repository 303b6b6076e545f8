import { inspect } from "node:util";
import mysql from "mysql2/promise";
import { afterAll, beforeAll, describe, expect, inject, onTestFinished, test } from "vitest";
import { sql } from "../../core/database/sql.ts";
import { type MysqlOptions, mysqlDatabase } from "../../core/stores/mysql/database.ts";
import { sqlInventory } from "../../core/stores/sql/inventory/index.ts";
import { sqlLocks } from "../../core/stores/sql/locks.ts";
import { migrate } from "../../core/stores/sql/migrate.ts";
import { open } from "../../infra/open.ts";
import { openReady } from "../../infra/open-ready.ts";
import { freePort } from "../../infra/servers/processes.ts";
import type { Server } from "../../infra/servers/server.ts";
import { startServer } from "../../infra/servers/start.ts";
import { describeSqlOutages } from "../conformance/sql-outages.ts";
import { type Authority, makeAuthority } from "../support/certificates.ts";
import { startCli } from "../support/cli.ts";
import { mysqlError } from "../support/error-answers.ts";
import { EVERY_VERSION } from "../support/matrix.ts";
import { TcpProxy } from "../support/tcp-proxy.ts";
import { sqlServerUnderTest, temporaryDatabase } from "../support/under-test.ts";
import { pause, until } from "../support/until.ts";

const CANARY = "canary-7f3a";

/** Longer than a test may take: a call that does not fail at once fails the test. */
const options = { ttl: 5_000, wait: 600_000 };

/** The error of a lock on this URL. Checks that the error shows no secret. */
async function failureOf(url: string): Promise<Record<string, unknown>> {
  const store = await open(url);
  const error = await store.locks.lock("a", options).then(
    () => undefined,
    (reason: unknown) => reason,
  );
  await store.close();
  expect(error).toBeInstanceOf(Error);
  const shown = inspect(error, { depth: 10, showHidden: true }) + JSON.stringify(error);
  expect(shown).not.toContain(CANARY);
  return error as Record<string, unknown>;
}

describe("a lock on an unusable MySQL server", () => {
  test("fails at once if no server listens", async () => {
    const error = await failureOf(`mysql://root:${CANARY}@127.0.0.1:${await freePort()}/shop`);
    expect(error).toMatchObject({ code: "STORE_UNAVAILABLE", retryable: true });
  });

  for (const server of inject("sqlServers")) {
    test(`fails at once after one attempt if the password is wrong (${server.name})`, async () => {
      const { port } = new URL(server.url);
      await using proxy = await TcpProxy.to(Number(port));
      const url = `mysql://nobody:${CANARY}@127.0.0.1:${proxy.port}/lockstep`;
      expect(await failureOf(url)).toMatchObject({ code: "STORE_REFUSED", retryable: false });
      expect(proxy.connections).toBe(1);
    });

    test(`fails with advice if the database or the tables are missing (${server.name})`, async () => {
      const { port } = new URL(server.url);
      const missing = await failureOf(`mysql://root@127.0.0.1:${port}/no_such_database`);
      expect(missing).toMatchObject({ code: "STORE_REFUSED" });
      const { url, drop } = await temporaryDatabase(server);
      const empty = await failureOf(url);
      expect(empty).toMatchObject({ code: "STORE_REFUSED" });
      expect(empty.message).toContain("lockstep migrate");
      await drop();
    });
  }

  test("fails after one ttl if the server does not answer", async () => {
    const [server] = inject("sqlServers");
    await using proxy = await TcpProxy.to(Number(new URL(server?.url ?? "").port));
    proxy.cut();
    const store = await open(`mysql://root@127.0.0.1:${proxy.port}/shop`);
    const lock = store.locks.lock("a", { ...options, ttl: 500 });
    await expect(lock).rejects.toMatchObject({ code: "STORE_UNAVAILABLE" });
    proxy.mend();
    await store.close();
  });
});

describe("TLS to MySQL", () => {
  let authority: Authority;
  let server: Server;
  let port: string;

  beforeAll(async () => {
    authority = await makeAuthority();
    server = await startWith("localhost");
    ({ port } = new URL(server.url));
  });

  afterAll(async () => {
    await server.stop();
    await authority[Symbol.asyncDispose]();
  });

  const startWith = async (host: string, days?: number) => {
    const { cert, key } = await authority.sign(host, days);
    const args = [`--ssl-ca=${authority.ca}`, `--ssl-cert=${cert}`, `--ssl-key=${key}`];
    return startServer("mariadb", { args });
  };

  test("is used with a private authority if the URL names it", async () => {
    const store = await open(`mysqls://root@localhost:${port}/lockstep?ca=${authority.ca}`);
    const [row] = (await store.database.read({
      texts: ["SHOW STATUS LIKE 'Ssl_version'"],
      values: [],
    })) ?? [{}];
    expect(String(row?.Value)).toMatch(/^TLSv1\.[23]$/);
    await migrate(store.database);
    const lock = await store.locks.lock("a", options);
    expect(await lock.unlock()).toBe("released");
    await store.close();
  });

  test("refuses an unknown authority", async () => {
    const error = await failureOf(`mysqls://root:${CANARY}@localhost:${port}/lockstep`);
    expect(error).toMatchObject({ code: "STORE_REFUSED", retryable: false });
  });

  test("trusts the authorities of NODE_EXTRA_CA_CERTS, by which functions reach RDS", async () => {
    const list = (env: NodeJS.ProcessEnv) =>
      startCli(["list", "--store", `mysqls://root@localhost:${port}/lockstep`], { env }).finished;
    expect(await list({ NODE_EXTRA_CA_CERTS: authority.ca })).toMatchObject({ status: 0 });
    expect(await list({ NODE_EXTRA_CA_CERTS: "" })).toMatchObject({
      status: 69,
      stderr: expect.stringContaining("certificate"),
    });
  });

  test("refuses a certificate of another host, and an expired certificate", async () => {
    for (const [host, days] of [
      ["elsewhere.example", 1],
      ["localhost", -1],
    ] as const) {
      const other = await startWith(host, days);
      const url = `mysqls://root@localhost:${new URL(other.url).port}/lockstep?ca=${authority.ca}`;
      expect(await failureOf(url)).toMatchObject({ code: "STORE_REFUSED" });
      await other.stop();
    }
  });

  test("does not fall back to an unencrypted connection", async () => {
    const plain = await startServer("mariadb", { args: ["--skip-ssl"] });
    const url = `mysqls://root@localhost:${new URL(plain.url).port}/lockstep?ca=${authority.ca}`;
    expect(await failureOf(url)).toMatchObject({ code: "STORE_REFUSED" });
    await plain.stop();
  });

  test("presents the client's certificate to a server that requires it", async () => {
    const admin = await mysql.createConnection(server.url);
    await admin.query("CREATE USER shop@localhost REQUIRE X509");
    await admin.query("CREATE USER shop@'127.0.0.1' REQUIRE X509");
    await admin.query("GRANT ALL ON lockstep.* TO shop@localhost");
    await admin.query("GRANT ALL ON lockstep.* TO shop@'127.0.0.1'");
    await admin.end();
    const base = `mysqls://shop@localhost:${port}/lockstep?ca=${authority.ca}`;
    expect(await failureOf(base)).toMatchObject({ code: "STORE_REFUSED" });
    const { cert, key } = await authority.sign("shop");
    const store = await open(`${base}&cert=${cert}&key=${key}`);
    await (await store.locks.lock("a", options)).unlock();
    await store.close();
  });

  test("always checks the certificate", async () => {
    const url = `mysqls://root@localhost:${port}/lockstep`;
    for (const option of ["rejectUnauthorized=false", "ssl-mode=REQUIRED", "insecure=1"]) {
      await expect(open(`${url}?${option}`)).rejects.toThrow(TypeError);
    }
    // A certificate has no name to compare with an address.
    await expect(open(`mysqls://root@127.0.0.1:${port}/lockstep`)).rejects.toThrow(TypeError);
    await expect(
      open(`mysql://root@localhost:${port}/lockstep?ca=${authority.ca}`),
    ).rejects.toThrow(TypeError);
    await expect(open(`${url}?ca=/no/such/file`)).rejects.toThrow(TypeError);
  });
});

describe("a full tablespace", () => {
  test("changes nothing, for certain, and may have room later", async () => {
    const file = "--innodb-data-file-path=ibdata1:12M:autoextend:max:18M";
    await using server = await startServer("mariadb", {
      args: ["--innodb-file-per-table=0", file],
    });
    await using store = await openReady(server.url);
    const { inventory, database } = store;
    await database.batch([sql`CREATE TABLE junk (bytes LONGBLOB)`]);
    await inventory.set({ sku: "cup", quantity: 10, operationId: "supply" });
    const sell = sql`UPDATE lockstep_stock SET on_hand = on_hand - 1, sold = sold + 1`;
    const fill = sql`INSERT INTO junk VALUES (REPEAT('x', 1000000))`;
    let sold = 0;
    const sellAndFill = async () => {
      await database.batch([sell, fill]);
      sold += 1;
    };
    const full = await until(() =>
      sellAndFill().then(
        () => undefined,
        (error: Error) => error,
      ),
    );
    expect(full).toMatchObject({ code: "STORE_UNAVAILABLE", retryable: true });
    expect(full.message).toContain("full");
    expect(await inventory.get("cup")).toMatchObject({ onHand: 10 - sold });
  });
});

describeSqlOutages("mariadb");

/** Counts the running statements that match, in this database. */
async function running(login: MysqlOptions, statement: string): Promise<number> {
  const connection = await mysql.createConnection({ ...login });
  const [rows] = await connection.query(
    `SELECT id FROM information_schema.processlist WHERE db = '${login.database}' AND info = '${statement}'`,
  );
  await connection.end();
  return (rows as unknown[]).length;
}

/** Errors of a proxy or a server that leave the outcome of a COMMIT unknown. */
const PROVE_NOTHING = [
  [2013, "HY000"],
  [2006, "HY000"],
  [1047, "08S01"],
  [1053, "08S01"],
  [1180, "HY000"],
  [3032, "HY000"],
  [1927, "70100"],
  [1105, "HY000"],
  [9001, "HY000"],
] as const;

for (const server of inject("sqlServers")) {
  describe(`an error in place of the answer from ${server.name}`, () => {
    const overProxy = async () => {
      const { options: login, drop } = await temporaryDatabase(server);
      const admin = mysqlDatabase(login);
      await migrate(admin);
      const proxy = await TcpProxy.to(login.port);
      // The connection that ends abandoned statements: its login, its settings, its requests.
      proxy.exempt = /password|CONNECTION_ID|KILL|processlist/;
      const database = mysqlDatabase({ ...login, port: proxy.port, connections: 1 });
      onTestFinished(async () => {
        await database.close();
        await admin.close();
        await proxy.close();
        await drop();
      });
      const replacing = async <T>(error: Uint8Array, call: () => Promise<T>): Promise<T> => {
        await database.read({ texts: ["SELECT 1"], values: [] });
        proxy.replaceNextAnswer(error);
        return call();
      };
      return { admin, database, proxy, replacing };
    };

    test("leaves a change of stock or of a lock unknown, unless the error proves a rollback", async () => {
      const { admin, database, replacing } = await overProxy();
      const stock = sqlInventory(database);
      const locks = sqlLocks(database);
      await stock.set({ sku: "a", quantity: 100, operationId: "set" });
      for (const [errno, state] of PROVE_NOTHING) {
        const error = mysqlError(errno, state);
        const sale = { sku: "a", quantity: 1, operationId: `sale/${errno}` };
        expect(await replacing(error, () => stock.decrement(sale))).toMatchObject({
          outcome: "applied",
        });
        const name = `lock/${errno}`;
        const lock = await replacing(error, () => locks.tryLock(name, { ttl: 30_000 }));
        expect(await sqlLocks(admin).inspect(name)).toMatchObject({
          fence: lock?.fence.toString(),
          holder: expect.anything(),
        });
        expect(await replacing(error, () => lock?.unlock() ?? Promise.reject())).toBe("released");
        const alone = replacing(error, () => database.batch([sql`SELECT 1`]));
        await expect(alone).rejects.toMatchObject({ code: "UNKNOWN_OUTCOME" });
      }
      expect(await stock.get("a")).toMatchObject({ sold: PROVE_NOTHING.length });
    });

    test("repeats a transaction whose COMMIT was not sent, and commits it once", async () => {
      const { database, proxy, replacing } = await overProxy();
      await sqlInventory(database).set({ sku: "a", quantity: 100, operationId: "set" });
      let bodies = 0;
      for (const [errno, state] of [
        [2013, "HY000"],
        [4031, "HY000"],
        [1047, "08S01"],
      ] as const) {
        bodies = 0;
        await replacing(mysqlError(errno, state), () =>
          database.transaction(async (tx) => {
            bodies += 1;
            await tx.batch([sql`UPDATE lockstep_stock SET on_hand = on_hand - 1, sold = sold + 1`]);
            await tx.commit([]);
          }),
        );
        expect(bodies).toBe(2);
      }
      bodies = 0;
      await database.read(sql`SELECT 1`);
      proxy.loseNextAnswer();
      await database.transaction(async (tx) => {
        bodies += 1;
        await tx.batch([sql`UPDATE lockstep_stock SET on_hand = on_hand - 1, sold = sold + 1`]);
        await tx.commit([]);
      });
      expect(bodies).toBe(2);
      expect(await sqlInventory(database).get("a")).toMatchObject({ onHand: 96 });
    });

    test("repeats a request that the server has not read in time", async () => {
      const { database, proxy } = await overProxy();
      const refusing = async <T>(call: () => Promise<T>): Promise<T> => {
        await database.read(sql`SELECT 1`);
        proxy.answerNextRequest(mysqlError(4031, "HY000"));
        return call();
      };
      const locks = sqlLocks(database);
      const lock = await refusing(() => locks.lock("a", { ttl: 30_000, wait: 0 }));
      await refusing(() => lock.ensure(29_500));
      expect(await refusing(() => lock.unlock())).toBe("released");
      expect(await refusing(() => database.batch([sql`SELECT 1`]))).toHaveLength(1);
    });

    test("rejects an invalid statement at once", async () => {
      const { database } = await overProxy();
      for (const wrong of [
        sql`SELEC 1`,
        sql`SELECT x FROM lockstep_lock`,
        sql`SELECT * FROM nowhere`,
      ]) {
        await expect(database.batch([wrong])).rejects.toMatchObject({ code: "STORE_REFUSED" });
        const within = database.transaction((tx) => tx.batch([wrong]));
        await expect(within).rejects.toMatchObject({ code: "STORE_REFUSED" });
      }
    });
  });
}

for (const server of inject("sqlServers")) {
  describe(`a lost answer from ${server.name}`, () => {
    test("leaves each change of stock applied once", async () => {
      const { options: login, drop } = await temporaryDatabase(server);
      const admin = mysqlDatabase(login);
      await migrate(admin);
      await using proxy = await TcpProxy.to(login.port);
      const database = mysqlDatabase({ ...login, port: proxy.port });
      const stock = sqlInventory(database);
      const losing = async <T>(call: () => Promise<T>): Promise<T> => {
        // The handshake is done first, so that the answer to the call is lost.
        await database.read({ texts: ["SELECT 1"], values: [] });
        proxy.loseNextAnswer();
        return call();
      };
      // The repetitions hit points before, between and after the statements of a batch.
      for (let i = 0; i < (EVERY_VERSION ? 60 : 20); i += 1) {
        const change = { sku: `many-${i}`, quantity: 4 };
        await stock.set({ ...change, quantity: 10, operationId: `many-${i}/1` });
        const reservation = `many-${i}/2`;
        const reserving = { ...change, operationId: reservation, expiresIn: 60_000 };
        expect(await losing(() => stock.reserve(reserving))).toMatchObject({ outcome: "applied" });
        const closing = { sku: change.sku, reservation, operationId: `many-${i}/3` };
        expect(await losing(() => stock.confirm(closing))).toMatchObject({ outcome: "applied" });
        const selling = { ...change, operationId: `many-${i}/4` };
        expect(await losing(() => stock.decrement(selling))).toMatchObject({ outcome: "applied" });
        const after = { onHand: 2, reserved: 0, sold: 8, supplied: 10 };
        expect(await stock.get(change.sku)).toEqual({ sku: change.sku, ...after });
        expect(await stock.history(change.sku)).toHaveLength(4);
      }
      const sku = "a";
      await losing(() => stock.set({ sku, quantity: 10, operationId: "1" }));
      await losing(() => stock.restock({ sku, quantity: 5, operationId: "2" }));
      const sold = await losing(() => stock.decrement({ sku, quantity: 3, operationId: "3" }));
      expect(sold).toMatchObject({ outcome: "applied", remaining: 12 });
      await losing(() => stock.reserve({ sku, quantity: 4, operationId: "4", expiresIn: 60_000 }));
      await losing(() => stock.confirm({ sku, reservation: "4", operationId: "5" }));
      const late = await losing(() => stock.decrement({ sku, quantity: 9, operationId: "6" }));
      expect(late).toMatchObject({ outcome: "sold-out", remaining: 8 });
      const batch = await losing(() =>
        stock.decrementMany({
          sku,
          orders: [
            { operationId: "7", quantity: 1 },
            { operationId: "8", quantity: 1 },
          ],
        }),
      );
      expect(batch.map(({ outcome }) => outcome)).toEqual(["applied", "applied"]);
      expect(await stock.get(sku)).toEqual({
        sku,
        onHand: 6,
        reserved: 0,
        sold: 9,
        supplied: 15,
      });
      expect(await stock.history(sku)).toHaveLength(8);
      await database.close();
      await admin.close();
      await drop();
    });

    test("or an ended connection loses no lock: another connection renews it", async () => {
      const store = await sqlServerUnderTest(server);
      const { store: client, wire } = await store.openOverWire();
      const lock = await client.lock("a", { ttl: 6_000, wait: 60_000 });
      for (let i = 0; i < 5; i += 1) {
        wire.mend();
        await pause(2_000);
        lock.assertHeld();
      }
      expect(await lock.unlock()).toBe("released");
      await client.close();
      await store.close();
    });
  });

  describe(`connections to ${server.name}`, () => {
    test("leave two for the renewal of locks when transactions use all others", async () => {
      const { options: login, drop } = await temporaryDatabase(server);
      const database = mysqlDatabase({ ...login, connections: 3 });
      await migrate(database);
      const locks = sqlLocks(database);
      // The transactions take longer: 5 s.
      const lock = await locks.lock("a", { ttl: 4_500, wait: 60_000 });
      let open = 0;
      let most = 0;
      const transactions = Array.from({ length: 5 }, () =>
        database.transaction(async (tx) => {
          most = Math.max(most, ++open);
          await tx.batch([{ texts: ["SELECT SLEEP(2.5)"], values: [] }]);
          open -= 1;
        }),
      );
      const given = new AbortController();
      await pause(100);
      const impatient = database.transaction(async () => {}, given.signal);
      given.abort("enough");
      await expect(impatient).rejects.toMatchObject({
        code: "STORE_UNAVAILABLE",
        cause: "enough",
      });
      await Promise.all(transactions);
      expect(most).toBe(3);
      lock.assertHeld();
      expect(await lock.unlock()).toBe("released");
      await database.close();
      await drop();
    });

    test("are abandoned when the caller aborts, for any reason", async () => {
      const { options: login, drop } = await temporaryDatabase(server);
      const database = mysqlDatabase({ ...login, connections: 1 });
      const refused = Object.assign(new Error("of another server"), { sqlState: "42S02" });
      for (const [i, reason] of [null, "enough", 7, refused].entries()) {
        const sleep = { texts: [`SELECT SLEEP(5), ${i}`], values: [] };
        const given = new AbortController();
        const calls = Array.from({ length: 4 }, () => database.batch([sleep], given.signal));
        const outcomes = Promise.allSettled(calls);
        await until(async () => (await running(login, `SELECT SLEEP(5), ${i}`)) === 1);
        given.abort(reason);
        const codes = (await outcomes).map((outcome) => {
          expect(outcome).toMatchObject({ status: "rejected", reason: { cause: reason } });
          return (outcome as PromiseRejectedResult).reason.code;
        });
        // One call had the connection, and three waited for it.
        expect(codes.sort()).toEqual([...Array(3).fill("STORE_UNAVAILABLE"), "UNKNOWN_OUTCOME"]);
      }
      await database.close();
      await drop();
    });
  });

  describe(`two deadlocked transactions on ${server.name}`, () => {
    test("both commit in the end", async () => {
      const { options: login, drop } = await temporaryDatabase(server);
      const database = mysqlDatabase(login);
      await migrate(database);
      const locks = sqlLocks(database);
      const names = Array.from({ length: 6 }, (_, i) => `n${i}`);
      const fences = (order: readonly string[]) =>
        database.transaction(async (tx) => {
          for (const name of order) {
            await tx.batch([
              {
                texts: ["UPDATE lockstep_fence SET fence = fence + 1 WHERE name = ", ""],
                values: [name],
              },
            ]);
            await pause(5);
          }
          await tx.commit([]);
        });
      for (const name of names) await (await locks.lock(name, options)).unlock();
      const both = [fences(names), fences([...names].reverse()), fences(names)];
      await Promise.all(both);
      const rows = await database.read({ texts: ["SELECT fence FROM lockstep_fence"], values: [] });
      expect(rows.map(({ fence }) => Number(fence))).toEqual(names.map(() => 4));
      await locks.close();
      await database.close();
      await drop();
    });
  });
}
