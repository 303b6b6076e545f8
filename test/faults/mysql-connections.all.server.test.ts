import mysql from "mysql2/promise";
import { afterAll, beforeAll, describe, expect, inject, onTestFinished, test } from "vitest";
import { sql } from "../../core/database/sql.ts";
import { type MysqlOptions, mysqlDatabase } from "../../core/stores/mysql/database.ts";
import { sqlInventory } from "../../core/stores/sql/inventory/index.ts";
import { sqlLocks } from "../../core/stores/sql/locks.ts";
import { migrate } from "../../core/stores/sql/migrate.ts";
import { LONGEST_SILENCE } from "../../core/stores/sql/server/driver.ts";
import type { Server } from "../../infra/servers/server.ts";
import { startServer } from "../../infra/servers/start.ts";
import { known } from "../support/known.ts";
import type { SqlServer } from "../support/sql-servers.ts";
import { TcpProxy } from "../support/tcp-proxy.ts";
import { temporaryDatabase } from "../support/under-test.ts";
import { pause, until, within } from "../support/until.ts";

/** A ttl longer than any pause of a busy machine. */
const LONG = 60_000;

/** A database with the tables, and an administrator's connection to its server. */
async function prepare(server: SqlServer) {
  const { options: login, drop } = await temporaryDatabase(server);
  const database = mysqlDatabase(login);
  await migrate(database);
  await database.close();
  const admin = await mysql.createConnection({ ...login, multipleStatements: true });
  onTestFinished(async () => {
    await admin.end();
    await drop();
  });
  return { login, admin };
}

/** A user of this test alone, with connections and settings of its own. */
async function userOf(admin: mysql.Connection, login: MysqlOptions): Promise<MysqlOptions> {
  const user = `u_${login.database.slice(-12)}`;
  await admin.query(`CREATE USER ${user}@'%'; GRANT ALL ON ${login.database}.* TO ${user}@'%'`);
  onTestFinished(async () => void (await admin.query(`DROP USER ${user}@'%'`)));
  return { ...login, user };
}

/** Counts the server's connections in this database, without the administrator's. */
async function connections(admin: mysql.Connection, { database }: MysqlOptions): Promise<number> {
  const [rows] = await admin.query(
    `SELECT id FROM information_schema.processlist WHERE db = '${database}' AND id <> CONNECTION_ID()`,
  );
  return (rows as unknown[]).length;
}

/** These tests disturb all users of a server, so they start one. */
describe("connections to a MySQL server of its own", () => {
  let server: Server;

  beforeAll(async () => {
    server = await startServer("mariadb");
  });

  afterAll(() => server.stop());

  test("never exceed the pool's size, however many calls are abandoned", async () => {
    const { login, admin } = await prepare({ name: "own", url: server.url });
    await using proxy = await TcpProxy.to(login.port ?? 0);
    // A busy server sees the end of a connection late.
    proxy.endDelay = 800;
    const database = mysqlDatabase({ ...login, port: proxy.port, connections: 4 });
    const locks = sqlLocks(database);
    await admin.query("FLUSH TABLES WITH READ LOCK");
    let most = 0;
    let isOver = false;
    const watching = (async () => {
      for (; !isOver; await pause(20)) most = Math.max(most, await connections(admin, login));
    })();
    const giveUpAt = performance.now() + 4_000;
    const caller = async (name: string) => {
      while (performance.now() < giveUpAt) {
        await locks.tryLock(name, { ttl: 1_000, renew: false }).catch(() => undefined);
      }
    };
    await Promise.all(Array.from({ length: 20 }, (_, i) => caller(`lock ${i}`)));
    isOver = true;
    await watching;
    // Four for work, two for locks, and one that kills.
    expect(most).toBeGreaterThan(0);
    expect(most).toBeLessThanOrEqual(4 + 2 + 1);
    await until(async () => (await connections(admin, login)) <= 6);
    await admin.query("UNLOCK TABLES");
    // No abandoned claim was committed later.
    await pause(300);
    expect(await locks.list()).toEqual([]);
    expect(await locks.tryLock("lock 1", { ttl: LONG })).toBeDefined();
    await database.close();
  });

  test("commit acknowledged changes with any settings of the server", async () => {
    const { login, admin } = await prepare({ name: "own", url: server.url });
    await admin.query("SET GLOBAL autocommit = 0; SET GLOBAL completion_type = 1");
    await expectCommits(login);
  });

  test("tell an empty text from NULL, in any mode of MariaDB", async () => {
    const { admin, login } = await prepare({ name: "own", url: server.url });
    const modes = "EMPTY_STRING_IS_NULL,STRICT_TRANS_TABLES";
    await admin.query("SET @before = @@sql_mode; SET GLOBAL sql_mode = ?", [modes]);
    onTestFinished(async () => void (await admin.query("SET GLOBAL sql_mode = @before")));
    await admin.query("DROP TABLE lockstep_migration, lockstep_run");
    await using database = mysqlDatabase(login);
    expect(await migrate(database)).toContain("0003-steps");
    const [row] = await database.read(sql`SELECT '' IS NULL AS isNull, @@sql_mode AS modes`);
    expect(row).toMatchObject({ isNull: 0, modes: expect.stringContaining("STRICT_TRANS_TABLES") });
  });

  test("read committed rows alone, with any isolation level of the server", async () => {
    const { login, admin } = await prepare({ name: "own", url: server.url });
    await admin.query("SET GLOBAL TRANSACTION ISOLATION LEVEL READ UNCOMMITTED");
    await using database = mysqlDatabase(login);
    const stock = sqlInventory(database);
    await stock.set({ sku: "a", quantity: 2, operationId: "set" });
    await database.transaction(async (tx) => {
      await stock.within(tx).decrement({ sku: "a", quantity: 2, operationId: "sale" });
      expect(await stock.get("a")).toMatchObject({ onHand: 2, sold: 0 });
    });
  });
});

/** Expects that another connection sees each acknowledged change. */
async function expectCommits(login: MysqlOptions): Promise<void> {
  const [ours, theirs] = [mysqlDatabase(login), mysqlDatabase(login)];
  const [a, b] = [sqlLocks(ours), sqlLocks(theirs)];
  const lock = await a.lock("a", { ttl: LONG / 2, wait: LONG, renew: false });
  await lock.ensure(LONG);
  await a.lockAll(["b", "c"], { ttl: LONG, wait: LONG });
  expect((await b.inspect("a")).expiresIn).toBeGreaterThan(LONG / 2);
  expect(await b.tryLock("b", { ttl: LONG })).toBeUndefined();
  await ours.close();
  await theirs.close();
}

for (const server of inject("sqlServers")) {
  describe(`connections to ${server.name}`, () => {
    test("commit acknowledged changes whatever init_connect sets", async () => {
      const { login, admin } = await prepare(server);
      const own = await userOf(admin, login);
      // For this user alone: other tests use the server, too. The server does not do so for an administrator.
      const ours = `SUBSTRING_INDEX(USER(), '@', 1) = '${own.user}'`;
      const init = `SET autocommit = IF(${ours}, 0, 1), completion_type = IF(${ours}, 1, 0)`;
      await admin.query("SET GLOBAL init_connect = ?", [init]);
      onTestFinished(async () => void (await admin.query("SET GLOBAL init_connect = ''")));
      const plain = await mysql.createConnection({ ...own });
      const [rows] = await plain.query("SELECT @@autocommit AS a, @@completion_type AS c");
      expect(rows).toEqual([{ a: 0, c: "CHAIN" }]);
      await plain.end();
      await expectCommits(own);
    });

    test("end at the server with their statements when they are abandoned", async () => {
      const { login, admin } = await prepare(server);
      const database = mysqlDatabase({ ...login, connections: 2 });
      await sqlInventory(database).set({ sku: "a", quantity: 1, operationId: "set" });
      await admin.query("BEGIN; SELECT * FROM lockstep_stock WHERE sku = 'a' FOR UPDATE");
      // A server that waits for a row does not notice the end of its client.
      const waiting = [
        sql`SET SESSION innodb_lock_wait_timeout = 600`,
        sql`SELECT * FROM lockstep_stock WHERE sku = 'a' FOR UPDATE`,
      ];
      const given = new AbortController();
      const calls = Array.from({ length: 2 }, () => database.batch(waiting, given.signal));
      const outcomes = Promise.allSettled(calls);
      await until(async () => (await connections(admin, login)) === 2);
      await pause(100);
      given.abort();
      await outcomes;
      await until(async () => (await connections(admin, login)) === 0);
      await admin.query("ROLLBACK");
      await database.close();
    });

    test("are detected when they are dead, before a lock is lost or a sale hangs", async () => {
      const { login } = await prepare(server);
      await using proxy = await TcpProxy.to(login.port ?? 0);
      const database = mysqlDatabase({ ...login, port: proxy.port });
      const locks = sqlLocks(database);
      const stock = sqlInventory(database);
      await stock.set({ sku: "a", quantity: 100, operationId: "set" });
      const lock = await locks.lock("a", { ttl: 9_000, wait: LONG });
      // Several connections, which are idle now.
      await Promise.all(Array.from({ length: 6 }, () => database.batch([sql`SELECT SLEEP(0.1)`])));
      await pause(1_100);
      proxy.blackhole();
      const sales = ["1", "2", "3"].map((operationId) =>
        stock.decrement({ sku: "a", quantity: 1, operationId }),
      );
      const answers = await within(8_000, Promise.all(sales));
      expect(answers.map(({ outcome }) => outcome)).toEqual(["applied", "applied", "applied"]);
      await lock.ensure(8_000);
      expect(await stock.get("a")).toMatchObject({ sold: 3 });
      expect(await lock.unlock()).toBe("released");
      await database.close();
    });

    test("cost one attempt when they die under a request; the next attempt uses another connection", async () => {
      const { login } = await prepare(server);
      await using proxy = await TcpProxy.to(login.port ?? 0);
      const database = mysqlDatabase({ ...login, port: proxy.port });
      const stock = sqlInventory(database);
      await stock.set({ sku: "a", quantity: 100, operationId: "set" });
      proxy.blackhole();
      const sale = stock.decrement({ sku: "a", quantity: 1, operationId: "sale" });
      expect(await within(8_000, sale)).toMatchObject({ outcome: "applied" });
      expect(await within(8_000, stock.get("a"))).toMatchObject({ sold: 1 });
      await database.close();
    });

    test("cost no call when the server ended them while the process was frozen", async () => {
      const { login } = await prepare(server);
      const database = mysqlDatabase({ ...login, connections: 1 });
      const stock = sqlInventory(database);
      const locks = sqlLocks(database);
      await stock.set({ sku: "a", quantity: 100, operationId: "set" });
      const lock = await locks.lock("a", { ttl: LONG, wait: LONG, renew: false });
      const calls = [
        () => locks.lock("b", { ttl: LONG, wait: LONG }),
        () => stock.decrement({ sku: "a", quantity: 1, operationId: "sale" }),
        () => stock.get("a"),
        () => lock.ensure(LONG - 1_000),
        () => lock.unlock(),
      ];
      for (const call of calls) {
        await known(() => database.batch([sql`SET SESSION wait_timeout = 1`]));
        // The process reads the server's messages after it has sent the call.
        Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 2_500);
        await call();
      }
      expect(await stock.get("a")).toMatchObject({ sold: 1 });
      await database.close();
    });

    test("end when the server does not answer after the login", async () => {
      const { login } = await prepare(server);
      await using proxy = await TcpProxy.to(login.port ?? 0);
      await using database = mysqlDatabase({ ...login, port: proxy.port });
      // The login is one request, and the next one makes our settings.
      proxy.delayNextRequest(1);
      const reading = database.batch([sql`SELECT 1`]);
      await expect(reading).rejects.toMatchObject({ code: "STORE_UNAVAILABLE" });
      await until(() => proxy.open === 0, 20_000);
    });

    test("keep concurrent migrations apart during a change of a table that takes long", async () => {
      const { login, admin } = await prepare(server);
      await admin.query("ALTER TABLE lockstep_run DROP COLUMN taken_over");
      await admin.query("DELETE FROM lockstep_migration WHERE version = 10");
      // The change waits for the end of this transaction, longer than the server waits for a silent client.
      await admin.query("BEGIN; SELECT COUNT(*) FROM lockstep_run");
      const databases = [1, 2, 3].map(() => mysqlDatabase(login));
      const migrating = Promise.all(databases.map(migrate));
      migrating.catch(() => {});
      await pause(LONGEST_SILENCE + 3_000);
      await admin.query("COMMIT");
      const names = (await migrating).flat();
      expect(names).toEqual([expect.stringMatching(/^0010-/)]);
      for (const database of databases) await database.close();
    });

    test("serve locks of other names while 30 changes wait for a locked row", async () => {
      const { login, admin } = await prepare(server);
      const database = mysqlDatabase(login);
      const stock = sqlInventory(database);
      const locks = sqlLocks(database);
      await stock.set({ sku: "a", quantity: 100, operationId: "set" });
      await admin.query("BEGIN; SELECT * FROM lockstep_stock WHERE sku = 'a' FOR UPDATE");
      const reserves = Array.from({ length: 30 }, (_, i) =>
        stock.reserve({ sku: "a", quantity: 1, operationId: `r${i}`, expiresIn: LONG }),
      );
      const outcomes = Promise.allSettled(reserves);
      await until(async () => (await connections(admin, login)) >= 10);
      const lock = await locks.lock("other", { ttl: 5_000, wait: LONG });
      for (let i = 0; i < 12; i += 1) {
        await pause(500);
        lock.assertHeld();
      }
      expect(await stock.get("a")).toMatchObject({ reserved: 0 });
      expect(await lock.unlock()).toBe("released");
      await admin.query("ROLLBACK");
      for (const outcome of await outcomes) {
        expect(outcome).toMatchObject({ status: "fulfilled", value: { outcome: "applied" } });
      }
      await database.close();
    });

    test("are shared if the server allows one only", async () => {
      const { login, admin } = await prepare(server);
      const user = await userOf(admin, login);
      await admin.query(`ALTER USER ${user.user}@'%' WITH MAX_USER_CONNECTIONS 1`);
      const database = mysqlDatabase(user);
      const locks = sqlLocks(database);
      const calls = Array.from({ length: 20 }, (_, i) => locks.tryLock(`${i}`, { ttl: LONG }));
      const all = await Promise.all(calls);
      expect(all.every((lock) => lock !== undefined)).toBe(true);
      await Promise.all(all.map((lock) => lock?.unlock()));
      await database.close();
    });
  });

  test(`a database on ${server.name} closes in time while the server is silent, and leaves no socket`, async () => {
    const { login } = await prepare(server);
    await using proxy = await TcpProxy.to(login.port ?? 0);
    const database = mysqlDatabase({ ...login, port: proxy.port });
    await database.read(sql`SELECT 1`);
    proxy.cut();
    const hanging = database.batch([sql`SELECT 1`]).catch(({ code }) => code);
    await pause(100);
    await database.close();
    expect(await hanging).toBe("UNKNOWN_OUTCOME");
    await until(() => proxy.open === 0);
    await expect(database.read(sql`SELECT 1`)).rejects.toMatchObject({ code: "STORE_CLOSED" });
  });

  test(`a database on ${server.name} without requests in flight closes sooner while the server is silent`, async () => {
    const { login } = await prepare(server);
    await using proxy = await TcpProxy.to(login.port ?? 0);
    const open = async () => {
      const database = mysqlDatabase({ ...login, port: proxy.port });
      await database.read(sql`SELECT 1`);
      return database;
    };
    const [busy, idle] = [await open(), await open()];
    proxy.cut();
    const hanging = busy.batch([sql`SELECT 1`]).catch(() => {});
    await pause(100);
    const closed: string[] = [];
    await Promise.all([
      busy.close().then(() => closed.push("busy")),
      idle.close().then(() => closed.push("idle")),
    ]);
    expect(closed).toEqual(["idle", "busy"]);
    await hanging;
  });
}
