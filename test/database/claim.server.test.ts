import { createHmac } from "node:crypto";
import mysql from "mysql2/promise";
import pg from "pg";
import { afterAll, beforeAll, describe, expect, inject, test } from "vitest";
import { claim, claimFence, readClaim } from "../../core/database/claim.ts";
import type { Database, Dialect, Sql } from "../../core/database/sql.ts";
import { type Fence, issueFence, sealFence } from "../../core/lock/fence.ts";
import type { LockStore } from "../../core/lock/lock.ts";
import { mysqlDialect } from "../../core/stores/mysql/dialect.ts";
import { postgresDialect } from "../../core/stores/postgres/dialect.ts";
import { sqlLocks } from "../../core/stores/sql/locks.ts";
import { migrate } from "../../core/stores/sql/migrate.ts";
import { blocksOf, pageAt } from "../support/docs.ts";
import type { SqlServer } from "../support/sql-servers.ts";
import { temporaryDatabase } from "../support/under-test.ts";

const servers = [...inject("sqlServers"), ...inject("postgresServers")];
const SECRET = "a secret of both services";

/** The statements of the page for a database, without COMMIT. */
function documented(isPostgres: boolean) {
  const [block = ""] = blocksOf(pageAt("docs/locks.md"), "sql");
  const statements = block
    .replaceAll(/^--.*$/gm, "")
    .split(";")
    .map((text) => text.trim())
    .filter(Boolean);
  expect(statements).toHaveLength(5);
  const [isolation = "", start = "", insert = "", select = ""] = statements;
  if (!isPostgres) return { begin: [isolation, start], insert, select };
  return {
    begin: ["BEGIN ISOLATION LEVEL READ COMMITTED"],
    insert: insert.replace("ON DUPLICATE KEY UPDATE", "ON CONFLICT (resource) DO UPDATE SET"),
    select,
  };
}

/** The service of another language: a driver, the statements of the page, and the sealed fences that it receives. */
class Service {
  readonly #connection: mysql.Connection | pg.Client;

  private constructor(connection: mysql.Connection | pg.Client) {
    this.#connection = connection;
  }

  static async connect(url: string): Promise<Service> {
    if (!url.startsWith("postgres:")) {
      // Tokens exactly, as a language with 64-bit integers reads them.
      const exact = { supportBigNumbers: true, bigNumberStrings: true };
      return new Service(await mysql.createConnection({ uri: url, ...exact }));
    }
    const client = new pg.Client(url);
    await client.connect();
    return new Service(client);
  }

  /** Begins a transaction and claims the resource. Resolves to whether the row is the fence's. */
  async claim(sealed: string): Promise<boolean> {
    const parameters = opened(sealed);
    const { begin, insert, select } = documented(this.#connection instanceof pg.Client);
    for (const statement of begin) await this.#query(statement, {});
    await this.#query(insert, parameters);
    const [row] = await this.#query(select, parameters);
    return (
      String(row?.generation) === String(parameters.generation) &&
      String(row?.token) === String(parameters.token) &&
      (row?.owner === null || String(row?.owner) === parameters.owner)
    );
  }

  async end(statement: "COMMIT" | "ROLLBACK"): Promise<void> {
    await this.#query(statement, {});
  }

  async #query(text: string, parameters: Values): Promise<Row[]> {
    const values: (string | bigint)[] = [];
    const isPostgres = this.#connection instanceof pg.Client;
    const numbered = text.replaceAll(/:(\w+)/g, (_, name: string) => {
      const place = values.push(parameters[name] ?? expect.fail(name));
      return isPostgres ? `$${place}` : "?";
    });
    if (this.#connection instanceof pg.Client) {
      return (await this.#connection.query(numbered, values)).rows;
    }
    const [rows] = await this.#connection.query(numbered, values);
    return Array.isArray(rows) ? (rows as Row[]) : [];
  }

  close(): Promise<void> {
    return this.#connection.end();
  }
}

type Row = Readonly<Record<string, unknown>>;
type Values = Readonly<Record<string, string | bigint>>;

/** Reads a sealed fence as the page says. */
function opened(sealed: string) {
  const at = sealed.lastIndexOf(":");
  const mac = createHmac("sha256", SECRET).update(sealed.slice(0, at)).digest("hex");
  expect(sealed.slice(at + 1)).toBe(mac);
  const [resource = "", place = "", owner = ""] = sealed.slice(0, at).split(":");
  const [generation = "", token = ""] = place.split(".");
  return {
    resource: decodeURIComponent(resource),
    generation: BigInt(generation),
    token: BigInt(token),
    owner: decodeURIComponent(owner),
  };
}

const shape = (text: string) =>
  text.replaceAll(/\s+/g, " ").replaceAll("( ", "(").replaceAll(" )", ")").trim();

test.each<Dialect>([mysqlDialect, postgresDialect])(
  "the page of locks has the statements that claimFence executes on $name",
  (dialect) => {
    const fence = issueFence("a resource", 1, 2n, "an owner");
    const names = new Map<unknown, string>([
      ["a resource", ":resource"],
      [1, ":generation"],
      [2n, ":token"],
      ["an owner", ":owner"],
    ]);
    const shown = ({ texts, values }: Sql) =>
      shape(texts.map((text, i) => text + (names.get(values[i]) ?? "")).join(""));
    const { insert, select } = documented(dialect === postgresDialect);
    expect(shape(insert)).toBe(shown(claim(dialect, fence)));
    // The package reads the token as text: its drivers answer with doubles.
    const plain = "SELECT generation, token, owner";
    expect(shown(readClaim(fence))).toBe(
      shape(select).replace(plain, "SELECT generation, CAST(token AS CHAR(20)) AS token, owner"),
    );
  },
);

describe.each(servers)("a service in another language on $name", (server: SqlServer) => {
  let drop: () => Promise<void>;
  let database: Database;
  let locks: LockStore;
  let service: Service;

  beforeAll(async () => {
    const temporary = await temporaryDatabase(server);
    drop = temporary.drop;
    database = temporary.open();
    await migrate(database);
    locks = sqlLocks(database);
    service = await Service.connect(temporary.url);
  });

  afterAll(async () => {
    await service.close();
    await locks.close();
    await database.close();
    await drop();
  });

  /** The fences of two holders, one after the other. */
  async function twoFences(name: string): Promise<readonly [Fence, Fence]> {
    const take = () => locks.withLock(name, { ttl: "60s", wait: "5s" }, async ({ fence }) => fence);
    return [await take(), await take()];
  }

  const claimed = (fence: Fence) =>
    database.transaction(async (tx) => {
      await claimFence(database, tx, fence);
      await tx.commit([]);
    });

  test("is refused with an older fence than that of a holder of ours", async () => {
    const [older, newer] = await twoFences("seats/großer Saal: 1");
    await claimed(newer);
    expect(await service.claim(await sealFence(older, SECRET))).toBe(false);
    await service.end("ROLLBACK");
    await claimed(newer);
  });

  test("is accepted with a newer fence, and again with the same one; a holder of ours is late then", async () => {
    const [older, newer] = await twoFences("seats/hall-2");
    await claimed(older);
    const sealed = await sealFence(newer, SECRET);
    for (const _ of [1, 2]) {
      expect(await service.claim(sealed)).toBe(true);
      await service.end("COMMIT");
    }
    await expect(claimed(older)).rejects.toMatchObject({ code: "FENCED_OUT" });
    await claimed(newer);
  });

  test("keeps a holder of ours waiting until its COMMIT, and refuses it then", async () => {
    const [older, newer] = await twoFences("seats/hall-3");
    expect(await service.claim(await sealFence(newer, SECRET))).toBe(true);
    const late = claimed(older).then(
      () => "accepted",
      ({ code }) => code,
    );
    const first = await Promise.race([
      late,
      new Promise((resolve) => setTimeout(resolve, 300, "waits")),
    ]);
    expect(first).toBe("waits");
    await service.end("COMMIT");
    expect(await late).toBe("FENCED_OUT");
  });

  test("leaves no claim behind when it rolls back", async () => {
    const [older, newer] = await twoFences("seats/hall-4");
    expect(await service.claim(await sealFence(newer, SECRET))).toBe(true);
    await service.end("ROLLBACK");
    await claimed(older);
  });
});
