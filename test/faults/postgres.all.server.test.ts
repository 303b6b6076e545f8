import { randomUUID } from "node:crypto";
import { chmod } from "node:fs/promises";
import { dirname } from "node:path";
import { afterAll, beforeAll, describe, expect, inject, test } from "vitest";
import { type Database, raw, sql } from "../../core/database/sql.ts";
import { migrate } from "../../core/stores/sql/migrate.ts";
import { open as openStore } from "../../infra/open.ts";
import { freePort, run } from "../../infra/servers/processes.ts";
import type { Server } from "../../infra/servers/server.ts";
import { startServer } from "../../infra/servers/start.ts";
import { describeSqlOutages } from "../conformance/sql-outages.ts";
import { type Authority, makeAuthority } from "../support/certificates.ts";
import { TcpProxy } from "../support/tcp-proxy.ts";
import { temporaryDatabase } from "../support/under-test.ts";
import { until } from "../support/until.ts";

type Settings = Readonly<Record<string, string>>;

for (const server of inject("postgresServers")) {
  describe("a database on PostgreSQL", () => {
    let own: Awaited<ReturnType<typeof temporaryDatabase>>;
    let admin: Database;

    beforeAll(async () => {
      own = await temporaryDatabase(server);
      admin = own.open();
      await admin.batch([sql`CREATE TABLE seat (id INT PRIMARY KEY, taken INT NOT NULL)`]);
      await admin.batch([sql`INSERT INTO seat VALUES (1, 0), (2, 0), (3, 0)`]);
    });

    afterAll(async () => {
      await admin.close();
      await own.drop();
    });

    /** Runs the body with a database whose sessions begin with these settings. */
    const withSettings = async (
      settings: Settings,
      body: (database: Database) => Promise<void>,
    ) => {
      const name = own.options.database;
      const set = async (to: (setting: string) => string) => {
        for (const setting of Object.keys(settings)) {
          await admin.batch([{ texts: [`ALTER DATABASE ${name} ${to(setting)}`], values: [] }]);
        }
      };
      await set((setting) => `SET ${setting} = '${settings[setting]}'`);
      const database = own.open();
      try {
        await body(database);
      } finally {
        await database.close();
        await set((setting) => `RESET ${setting}`);
      }
    };

    /** How many sessions of this database, except the asking one, execute such a statement. */
    const sessions = async (statement: string) => {
      const [row] = await admin.read(sql`
        SELECT COUNT(*) AS n FROM pg_stat_activity
        WHERE datname = current_database() AND pid <> pg_backend_pid() AND query LIKE ${statement}`);
      return Number(row?.n);
    };

    const take = sql`UPDATE seat SET taken = taken + 1 WHERE id = 3`;

    /** Makes statements that fail with an SQLSTATE, each time or once, and a function that counts what was taken since. */
    const failures = async () => {
      const sequence = `failures_${randomUUID().replaceAll("-", "")}`;
      await admin.batch([raw(`CREATE SEQUENCE ${sequence}`)]);
      const raise = (code: string, when: string) =>
        raw(`DO $$ BEGIN IF ${when} THEN RAISE 'made' USING ERRCODE = '${code}'; END IF; END $$`);
      let before = 0;
      const taken = async () => {
        const [row] = await admin.read(sql`SELECT taken FROM seat WHERE id = 3`);
        const more = Number(row?.taken) - before;
        before += more;
        return more;
      };
      await taken();
      return {
        always: (code: string) => raise(code, "TRUE"),
        // A sequence counts on although the transaction is rolled back.
        once: (code: string) => raise(code, `nextval('${sequence}') % 2 = 1`),
        taken,
      };
    };

    test("runs transactions read committed, whatever the default is", async () => {
      await withSettings({ default_transaction_isolation: "serializable" }, async (database) => {
        const show = sql`SELECT current_setting('transaction_isolation') AS level`;
        const committed = [{ level: "read committed" }];
        expect(await database.read(show)).toEqual(committed);
        expect((await database.batch([show]))[0]?.rows).toEqual(committed);
        expect((await database.batch([show, show]))[1]?.rows).toEqual(committed);
        const [shown] = await database.transaction((tx) => tx.batch([show]));
        expect(shown?.rows).toEqual(committed);
      });
    });

    test("keeps backslashes and integers exact under any settings", async () => {
      const settings = { standard_conforming_strings: "off", bytea_output: "escape" };
      await withSettings(settings, async (database) => {
        const bytes = new Uint8Array([0, 39, 92, 255]);
        const [row] = await database.read(
          sql`SELECT ${"\\'; --"} AS text, ${bytes} AS bytes, ${2n ** 62n} AS number`,
        );
        expect(row?.text).toBe("\\'; --");
        expect(new Uint8Array(row?.bytes as Buffer)).toEqual(bytes);
        expect(row?.number).toBe(String(2n ** 62n));
      });
    });

    test("says for certain that nothing has happened, and whether a retry may help", async () => {
      const take = sql`UPDATE seat SET taken = taken + 1 WHERE id = 1`;
      const unavailable = { code: "STORE_UNAVAILABLE" };
      await withSettings({ statement_timeout: "100ms" }, async (database) => {
        await expect(database.batch([take, sql`SELECT pg_sleep(60)`])).rejects.toMatchObject(
          unavailable,
        );
      });
      await withSettings({ default_transaction_read_only: "on" }, async (database) => {
        await expect(database.batch([take])).rejects.toMatchObject(unavailable);
      });
      const refused = { code: "STORE_REFUSED" };
      const nobody = sql`INSERT INTO seat VALUES (4, NULL)`;
      await expect(admin.batch([take, nobody])).rejects.toMatchObject(refused);
      await expect(admin.batch([take, sql`SELECT 1 / 0`])).rejects.toMatchObject(refused);
      const again = admin.batch([take, sql`INSERT INTO seat VALUES (2, 0)`]);
      await expect(again).rejects.toMatchObject({ name: "DuplicateKeyError" });
      expect(await admin.read(sql`SELECT taken FROM seat WHERE id = 1`)).toEqual([{ taken: 0 }]);
    });

    test.each(["40001", "40P01", "55P03", "25P03", "57P05"])(
      "repeats a batch that was rolled back with the error %s, and a transaction",
      async (code) => {
        const { once, taken } = await failures();
        await admin.batch([take, once(code)]);
        expect(await taken()).toBe(1);
        await admin.transaction(async (tx) => {
          await tx.batch([take]);
          await tx.commit([once(code)]);
        });
        expect(await taken()).toBe(1);
      },
    );

    test.each(["25006", "57014", "53100", "53300", "57P03"])(
      "calls the server unavailable after the error %s: nothing has happened",
      async (code) => {
        const { always, taken } = await failures();
        const failing = admin.batch([take, always(code)]);
        await expect(failing).rejects.toMatchObject({ code: "STORE_UNAVAILABLE" });
        expect(await taken()).toBe(0);
      },
    );

    test.each(["08000", "08003", "08006", "57P01", "57P02", "58030", "XX000"])(
      "does not know the outcome of a batch after the error %s, and repeats a transaction that had not sent its COMMIT",
      async (code) => {
        const { once, always, taken } = await failures();
        const failing = admin.batch([take, always(code)]);
        await expect(failing).rejects.toMatchObject({ code: "UNKNOWN_OUTCOME" });
        await admin.transaction(async (tx) => {
          await tx.batch([take, once(code)]);
          await tx.commit([]);
        });
        expect(await taken()).toBe(1);
      },
    );

    test("does not say so after its session was ended during a batch", async () => {
      await using database = own.open();
      const batch = database.batch([sql`SELECT 'ended', pg_sleep(600)`]);
      const ended = expect(batch).rejects.toMatchObject({ code: "UNKNOWN_OUTCOME" });
      await until(async () => (await sessions("%'ended'%")) === 1);
      await admin.read(sql`
        SELECT pg_terminate_backend(pid) FROM pg_stat_activity
        WHERE datname = current_database() AND pid <> pg_backend_pid() AND query LIKE '%''ended''%'`);
      await ended;
    });

    test("repeats a transaction whose session was idle for too long", async () => {
      const settings = { idle_in_transaction_session_timeout: "1s" };
      await withSettings(settings, async (database) => {
        let attempts = 0;
        await database.transaction(async (tx) => {
          attempts += 1;
          await tx.batch([sql`SELECT 'idle'`]);
          if (attempts === 1) await until(async () => (await sessions("%'idle'%")) === 0);
          await tx.commit([]);
        }, AbortSignal.timeout(60_000));
        expect(attempts).toBeGreaterThan(1);
      });
    });

    test("repeats a transaction that was the victim of a deadlock, also if its body replaces the error", async () => {
      const both = Promise.withResolvers<void>();
      let holders = 0;
      const take = (id: number) => sql`UPDATE seat SET taken = taken + 1 WHERE id = ${id}`;
      const inOrder = (first: number, second: number) =>
        admin.transaction(async (tx) => {
          await tx.batch([take(first)]);
          holders += 1;
          if (holders === 2) both.resolve();
          await both.promise;
          await tx.commit([take(second)]).catch((cause) => {
            throw new Error("the body's own", { cause });
          });
        }, AbortSignal.timeout(60_000));
      await Promise.all([inOrder(1, 2), inOrder(2, 1)]);
      const taken = await admin.read(sql`SELECT taken FROM seat WHERE id < 3 ORDER BY id`);
      expect(taken).toEqual([{ taken: 2 }, { taken: 2 }]);
    });

    test("cancels a statement that was given up, and keeps to its number of connections", async () => {
      await using database = own.open({ connections: 3 });
      const given = new AbortController();
      const calls = Array.from({ length: 12 }, () =>
        database.batch([sql`SELECT 'given up', pg_sleep(600)`], given.signal),
      );
      const settled = Promise.allSettled(calls);
      await until(async () => (await sessions("%'given up'%")) === 3);
      given.abort(new Error("enough"));
      const reasons = (await settled).map((each) => each.status);
      expect(new Set(reasons)).toEqual(new Set(["rejected"]));
      await until(async () => (await sessions("%'given up'%")) === 0);
      const reading = database.read(sql`SELECT pg_sleep(600)`, AbortSignal.timeout(50));
      await expect(reading).rejects.toMatchObject({ code: "STORE_UNAVAILABLE" });
      expect((await database.batch([sql`SELECT 1 AS one`]))[0]?.rows).toEqual([{ one: 1 }]);
    });
  });
}

describeSqlOutages("postgres");

const options = { ttl: 30_000, wait: 30_000 };

/** The code of the error of a lock on this URL. */
async function failureOf(url: string): Promise<unknown> {
  const store = await openStore(url);
  const code = await store.locks.lock("a", options).then(
    () => "none",
    (error) => error.code,
  );
  await store.close();
  return code;
}

describe("a lock on an unusable PostgreSQL server", () => {
  test("fails at once if no server listens", async () => {
    const url = `postgres://postgres@127.0.0.1:${await freePort()}/shop`;
    expect(await failureOf(url)).toBe("STORE_UNAVAILABLE");
  });

  for (const server of inject("postgresServers")) {
    test("fails at once after one attempt if the database or the user is missing", async () => {
      const { port } = new URL(server.url);
      for (const rest of ["postgres@127.0.0.1:PORT/nowhere", "nobody@127.0.0.1:PORT/postgres"]) {
        await using proxy = await TcpProxy.to(Number(port));
        const url = `postgres://${rest.replace("PORT", String(proxy.port))}`;
        expect(await failureOf(url)).toBe("STORE_REFUSED");
        expect(proxy.connections).toBe(1);
      }
    });
  }
});

describe("TLS to PostgreSQL", () => {
  let authority: Authority;
  let server: Server;
  let port: string;

  const startWith = async (host: string) => {
    const { cert, key } = await authority.sign(host);
    await chmod(key, 0o600);
    if (process.getuid?.() === 0) await run("chown", ["-R", "postgres:", dirname(key)]);
    const files = [`ssl_cert_file=${cert}`, `ssl_key_file=${key}`];
    const settings = ["ssl=on", "fsync=off", ...files];
    return startServer("postgres", { args: settings.flatMap((setting) => ["-c", setting]) });
  };

  beforeAll(async () => {
    authority = await makeAuthority();
    server = await startWith("localhost");
    ({ port } = new URL(server.url));
  });

  afterAll(async () => {
    await server.stop();
    await authority[Symbol.asyncDispose]();
  });

  test("is used with a private authority if the URL names it", async () => {
    const url = `postgres://postgres@localhost:${port}/postgres?sslmode=verify-full&sslrootcert=${authority.ca}`;
    await using store = await openStore(url);
    await migrate(store.database);
    const [row] = await store.database.read(
      sql`SELECT version FROM pg_stat_ssl WHERE pid = pg_backend_pid()`,
    );
    expect(row?.version).toMatch(/^TLSv1\.[23]$/);
    const lock = await store.locks.lock("a", options);
    expect(await lock.unlock()).toBe("released");
  });

  test("refuses an unknown authority, another host, and a server without TLS", async () => {
    const base = `postgres://postgres@localhost:${port}/postgres?sslmode=require`;
    expect(await failureOf(base)).toBe("STORE_REFUSED");
    // The certificate has the name of the host, not its address.
    const address = base.replace("localhost", "127.0.0.1");
    expect(await failureOf(`${address}&sslrootcert=${authority.ca}`)).toBe("STORE_REFUSED");
    for (const { url } of inject("postgresServers")) {
      const plain = `${url.replace("127.0.0.1", "localhost")}?sslmode=require`;
      expect(await failureOf(`${plain}&sslrootcert=${authority.ca}`)).toBe("STORE_REFUSED");
    }
  });
});
