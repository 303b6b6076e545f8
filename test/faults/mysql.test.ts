import { inspect } from "node:util";
import mysql from "mysql2/promise";
import { afterAll, beforeAll, describe, expect, inject, test } from "vitest";
import { sqlInventory } from "../../core/inventory/sql.ts";
import { mysqlStore, openMysql } from "../../core/stores/mysql/index.ts";
import { migrate } from "../../infra/migrate.ts";
import { open } from "../../infra/open.ts";
import { freePort } from "../../infra/servers/processes.ts";
import { type Server, startServer } from "../../infra/servers/start.ts";
import { type Authority, makeAuthority } from "../support/certificates.ts";
import { TcpProxy } from "../support/tcp-proxy.ts";
import { mysqlUnderTest, temporaryDatabase } from "../support/under-test.ts";
import { pause } from "../support/until.ts";

const CANARY = "canary-7f3a";

const options = { ttl: 5_000, wait: 30_000 };

/** What a lock on this URL fails with; nothing of it may show a secret. */
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

describe("a MySQL server that cannot be used", () => {
  test("because nobody listens is told at once", async () => {
    const start = performance.now();
    const error = await failureOf(`mysql://root:${CANARY}@127.0.0.1:${await freePort()}/shop`);
    expect(error).toMatchObject({ code: "STORE_UNAVAILABLE", retryable: true });
    expect(performance.now() - start).toBeLessThan(5_000);
  });

  for (const server of inject("sqlServers")) {
    test(`because the password is wrong is told at once, and asked once (${server.name})`, async () => {
      const { port } = new URL(server.url);
      await using proxy = await TcpProxy.to(Number(port));
      const url = `mysql://nobody:${CANARY}@127.0.0.1:${proxy.port}/lockstep`;
      expect(await failureOf(url)).toMatchObject({ code: "STORE_REFUSED", retryable: false });
      expect(proxy.connections).toBe(1);
    });

    test(`because there is no such database or no table says what to do (${server.name})`, async () => {
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

  test("because it does not answer is given up after one ttl", async () => {
    const [server] = inject("sqlServers");
    await using proxy = await TcpProxy.to(Number(new URL(server?.url ?? "").port));
    proxy.cut();
    const store = await open(`mysql://root@127.0.0.1:${proxy.port}/shop`);
    const start = performance.now();
    const lock = store.locks.lock("a", { ttl: 500, wait: 30_000 });
    await expect(lock).rejects.toMatchObject({ code: "STORE_UNAVAILABLE" });
    expect(performance.now() - start).toBeLessThan(5_000);
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
    return startServer("mysql", { args });
  };

  test("is used, with our own authority, when the URL says so", async () => {
    const store = await open(`mysqls://root@localhost:${port}/lockstep?ca=${authority.ca}`);
    const [row] = (await store.database?.read({
      texts: ["SHOW STATUS LIKE 'Ssl_version'"],
      values: [],
    })) ?? [{}];
    expect(String(row?.Value)).toMatch(/^TLSv1\.[23]$/);
    if (store.database) await migrate(store.database);
    const lock = await store.locks.lock("a", options);
    expect(await lock.unlock()).toBe("released");
    await store.close();
  });

  test("refuses an authority that it does not know", async () => {
    const error = await failureOf(`mysqls://root:${CANARY}@localhost:${port}/lockstep`);
    expect(error).toMatchObject({ code: "STORE_REFUSED", retryable: false });
  });

  test("refuses a certificate of another host, and one that has expired", async () => {
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

  test("is not given up where the server has none", async () => {
    const plain = await startServer("mysql", { args: ["--skip-ssl"] });
    const url = `mysqls://root@localhost:${new URL(plain.url).port}/lockstep?ca=${authority.ca}`;
    expect(await failureOf(url)).toMatchObject({ code: "STORE_REFUSED" });
    await plain.stop();
  });

  test("shows the client's certificate to a server that asks for it", async () => {
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

  test("cannot be asked for without checking", async () => {
    const url = `mysqls://root@localhost:${port}/lockstep`;
    for (const option of ["rejectUnauthorized=false", "ssl-mode=REQUIRED", "insecure=1"]) {
      await expect(open(`${url}?${option}`)).rejects.toThrow(TypeError);
    }
    // An address could not be checked against the certificate's name.
    await expect(open(`mysqls://root@127.0.0.1:${port}/lockstep`)).rejects.toThrow(TypeError);
    await expect(
      open(`mysql://root@localhost:${port}/lockstep?ca=${authority.ca}`),
    ).rejects.toThrow(TypeError);
    await expect(open(`${url}?ca=/no/such/file`)).rejects.toThrow(TypeError);
  });
});

describe("a MySQL server that is killed", () => {
  let server: Server;

  beforeAll(async () => {
    server = await startServer("mysql");
    const { database, close } = await open(server.url);
    if (database) await migrate(database);
    await close();
  });

  afterAll(() => server.stop());

  const restart = async () => {
    const [node] = server.nodes;
    await node?.kill("SIGKILL");
    await pause(300);
    await node?.start();
  };

  test("keeps an acknowledged lock, and those who wait for it get it in the end", async () => {
    const [ours, theirs] = [await open(server.url), await open(server.url)];
    const lock = await ours.locks.lock("a", { ttl: 30_000, wait: 0 });
    const waiting = theirs.locks.lock("a", { ttl: 30_000, wait: 60_000 });
    await pause(200);
    await restart();
    expect(await theirs.locks.tryLock("a", { ttl: 30_000 })).toBeUndefined();
    lock.assertHeld();
    await lock.ensure(30_000);
    expect(await lock.unlock()).toBe("released");
    const next = await waiting;
    expect(next.fence.token).toBeGreaterThan(lock.fence.token);
    await next.unlock();
    await ours.close();
    await theirs.close();
  }, 90_000);

  test("loses no acknowledged sale, and makes none twice", async () => {
    const { inventory, close } = await open(server.url);
    const stock = inventory ?? sqlInventory(openMysql({ host: "", user: "", database: "" }));
    await stock.set({ sku: "a", quantity: 100_000, operationId: "set" });
    const acknowledged = new Set<string>();
    let stop = false;
    const seller = async (number: number) => {
      for (let order = 0; !stop; order += 1) {
        const operationId = `${number}/${order}`;
        const change = { sku: "a", quantity: 1, operationId };
        // An order whose answer is not known is asked for again, under the same id.
        for (let sold = false; !sold && !stop; ) {
          sold = await stock.decrement(change).then(
            ({ outcome }) => outcome === "applied",
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
    for (let i = 0; i < 2; i += 1) {
      await pause(400);
      await restart();
    }
    await pause(400);
    stop = true;
    await Promise.all(sellers);
    const entries = (await stock.history("a", { limit: 10_000 })).filter(
      ({ kind }) => kind === "decrement",
    );
    const recorded = new Set(entries.map(({ operationId }) => operationId));
    expect(acknowledged.size).toBeGreaterThan(50);
    for (const id of acknowledged) expect(recorded).toContain(id);
    expect(recorded.size).toBe(entries.length);
    expect(await stock.get("a")).toMatchObject({
      sold: entries.length,
      onHand: 100_000 - entries.length,
    });
    await close();
  }, 90_000);
});

for (const server of inject("sqlServers")) {
  describe(`a lost answer from ${server.name}`, () => {
    test("to any change of stock leaves it applied once", async () => {
      const { options: login, drop } = await temporaryDatabase(server);
      const admin = openMysql(login);
      await migrate(admin);
      await using proxy = await TcpProxy.to(login.port);
      const database = openMysql({ ...login, port: proxy.port });
      const stock = sqlInventory(database);
      const losing = async <T>(call: () => Promise<T>): Promise<T> => {
        // So that it is the answer to the call that is lost, not one to a handshake.
        await database.read({ texts: ["SELECT 1"], values: [] });
        proxy.loseNextAnswer();
        return call();
      };
      // A cut may come before, between or after the statements of a packet: so many times.
      for (let i = 0; i < 60; i += 1) {
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
    }, 60_000);

    test("and a connection that the server ends: a lock is kept, and renewed over another one", async () => {
      const store = await mysqlUnderTest(server);
      const { store: client, wire } = await store.openOverWire();
      const lock = await client.lock("a", { ttl: 900, wait: 0 });
      for (let i = 0; i < 5; i += 1) {
        wire.mend();
        await pause(300);
        lock.assertHeld();
      }
      expect(await lock.unlock()).toBe("released");
      await client.close();
      await store.close();
    });
  });

  describe(`connections to ${server.name}`, () => {
    test("that transactions have all in use leave two for the renewal of locks", async () => {
      const { options: login, drop } = await temporaryDatabase(server);
      const database = openMysql({ ...login, connections: 3 });
      await migrate(database);
      const locks = mysqlStore(database);
      const lock = await locks.lock("a", { ttl: 1_000, wait: 0 });
      let open = 0;
      let most = 0;
      const transactions = Array.from({ length: 5 }, () =>
        database.transaction(async (tx) => {
          most = Math.max(most, ++open);
          await tx.packet([{ texts: ["SELECT SLEEP(2.5)"], values: [] }]);
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

    test("are given up when the caller aborts, whatever its reason", async () => {
      const { options: login, drop } = await temporaryDatabase(server);
      const database = openMysql({ ...login, connections: 1 });
      const sleep = { texts: ["SELECT SLEEP(0.5)"], values: [] };
      const refused = Object.assign(new Error("of another server"), { sqlState: "42S02" });
      for (const reason of [null, "enough", 7, refused]) {
        const given = new AbortController();
        const calls = Array.from({ length: 4 }, () => database.packet([sleep], given.signal));
        const outcomes = Promise.allSettled(calls);
        await pause(200);
        given.abort(reason);
        const codes = (await outcomes).map((outcome) => {
          expect(outcome).toMatchObject({ status: "rejected", reason: { cause: reason } });
          return (outcome as PromiseRejectedResult).reason.code;
        });
        // Three were on a connection, and one waited for it.
        expect(codes.sort()).toEqual(["STORE_UNAVAILABLE", ...Array(3).fill("UNKNOWN_OUTCOME")]);
      }
      await database.close();
      await drop();
    });
  });

  describe(`two deadlocked transactions on ${server.name}`, () => {
    test("are both done in the end", async () => {
      const { options: login, drop } = await temporaryDatabase(server);
      const database = openMysql(login);
      await migrate(database);
      const locks = mysqlStore(database);
      const names = Array.from({ length: 6 }, (_, i) => `n${i}`);
      const fences = (order: readonly string[]) =>
        database.transaction(async (tx) => {
          for (const name of order) {
            await tx.packet([
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
