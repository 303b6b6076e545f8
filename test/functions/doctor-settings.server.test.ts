import { expect, inject, test } from "vitest";
import { raw } from "../../core/database/sql.ts";
import { mastersIn } from "../../functions/doctor/redis.ts";
import { open } from "../../infra/open.ts";
import { startServer } from "../../infra/servers/start.ts";
import { cliInProcess } from "../support/cli-in-process.ts";
import { findingsOf } from "../support/doctor.ts";
import { redisServer } from "../support/redis-under-test.ts";
import { connectTo, temporaryDatabase } from "../support/under-test.ts";

const LONGEST = 120_000;

test("the masters of a Redis Cluster on IPv6 are asked at addresses that a URL can have", () => {
  const slots = [
    [0, 8191, ["::1", 7000]],
    [8192, 12000, ["127.0.0.1", 7001]],
    [12001, 16383, ["::1", 7000]],
  ] as const;
  expect(mastersIn(slots)).toEqual(["[::1]:7000", "127.0.0.1:7001"]);
});

test(
  "a Redis is healthy for a user with the rights that the documentation names",
  async () => {
    const [port = 0] = redisServer("redis").ports;
    await using admin = await open(`redis://127.0.0.1:${port}`);
    const user = "of-the-documentation";
    const rights = ["~*", "&*", "+@all", "-@admin", "-@dangerous"];
    await admin.redis.call(["ACL", "SETUSER", user, "on", ">secret", ...rights]);
    const login = `${user}:secret@127.0.0.1:${port}`;
    for (const url of [`redis://${login}`, `redlock://${login}`]) {
      const found = await findingsOf(url);
      expect(found).toContainEqual(
        expect.objectContaining({ check: "version", status: "note", cure: "grant +info" }),
      );
      expect(found).toContainEqual(
        expect.objectContaining({ message: "locks can be taken and released" }),
      );
      expect(found.filter(({ status }) => status === "problem")).toEqual([]);
    }
    const wrong = await findingsOf(`redlock://${user}:wrong@127.0.0.1:${port}`);
    expect(wrong).toContainEqual(expect.objectContaining({ check: "refused", status: "problem" }));
    await admin.redis.call(["ACL", "DELUSER", user]);
  },
  LONGEST,
);

test(
  "a PostgreSQL whose transactions are read-only by default is no healthy store",
  async () => {
    const [server] = inject("postgresServers");
    if (!server) throw new Error("the server is missing");
    const { url, drop } = await temporaryDatabase(server);
    expect(await cliInProcess("migrate", "--store", url)).toMatchObject({ status: 0 });
    await using store = await open(url);
    const name = new URL(url).pathname.slice(1);
    await store.database.batch([
      raw(`ALTER DATABASE ${name} SET default_transaction_read_only = on`),
    ]);
    await store.close();
    expect(await findingsOf(url)).toContainEqual(
      expect.objectContaining({
        check: "role",
        message: "default_transaction_read_only is on: no lock can be taken",
      }),
    );
    await drop();
  },
  LONGEST,
);

test(
  "a PostgreSQL whose commits wait for a standby that is away answers reads alone",
  async () => {
    await using server = await startServer("postgres");
    const { url } = server;
    expect(await cliInProcess("migrate", "--store", url)).toMatchObject({ status: 0 });
    const admin = await connectTo(url);
    await admin.query("ALTER SYSTEM SET synchronous_standby_names = 'nobody'");
    await admin.query("SELECT pg_reload_conf()");
    const found = await findingsOf(url);
    expect(found).toContainEqual(
      expect.objectContaining({
        check: "replication",
        status: "problem",
        message: "commits wait for standbys, nobody, and none is connected: no commit ends",
      }),
    );
    expect(found.at(-1)).toMatchObject({ check: "unavailable", status: "problem" });
    await admin.end();
  },
  LONGEST,
);

test(
  "an older way of MariaDB to flush each commit is durable",
  async () => {
    await using server = await startServer("mariadb");
    const { url } = server;
    await using store = await open(url);
    await store.database.read(raw("SET GLOBAL innodb_flush_log_at_trx_commit = 3"));
    expect(await findingsOf(url)).toContainEqual({
      check: "durability",
      status: "ok",
      message: "innodb_flush_log_at_trx_commit = 3: each commit is on disk",
    });
  },
  LONGEST,
);
