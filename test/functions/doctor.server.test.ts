import { describe, expect, inject, test } from "vitest";
import { raw } from "../../core/database/sql.ts";
import { examine } from "../../functions/doctor/doctor.ts";
import { type Finding, judgeVersion } from "../../functions/doctor/finding.ts";
import { open } from "../../infra/open.ts";
import { startServer } from "../../infra/servers/start.ts";
import { cli } from "../support/cli.ts";
import { temporaryDatabase } from "../support/under-test.ts";

async function findingsOf(url: string): Promise<readonly Finding[]> {
  await using store = await open(url, { create: false });
  const findings: Finding[] = [];
  for await (const finding of examine(store)) findings.push(finding);
  return findings;
}

const problemsOf = (findings: readonly Finding[]) =>
  findings.filter(({ status }) => status === "problem");

const LONGEST = 120_000;

describe.concurrent("lockstep doctor", () => {
  test(
    "finds what may lose locks in a Redis, and a wrong password",
    async () => {
      await using server = await startServer("redis", {
        args: ["--appendonly", "yes", "--appendfsync", "always"],
      });
      const { url } = server;
      const healthy = await cli("doctor", url, "--json");
      expect(healthy).toMatchObject({ status: 0 });
      expect(JSON.parse(healthy.stdout)).toContainEqual({
        check: "durability",
        status: "ok",
        message: "appendfsync always: no lock is lost",
      });
      await using store = await open(url);
      await store.redis.call(["CONFIG", "SET", "appendfsync", "no"]);
      expect(problemsOf(await findingsOf(url))).toMatchObject([
        { check: "durability", message: expect.stringContaining("appendfsync no: a crash") },
      ]);
      await store.redis.call(["CONFIG", "SET", "appendfsync", "always"]);
      await store.redis.call(["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]);
      const evicting = await cli("doctor", url);
      expect(evicting).toMatchObject({
        status: 1,
        stdout: expect.stringMatching(/^problem +eviction .*allkeys-lru.*locks, fences and stock/m),
      });
      await store.redis.call(["CONFIG", "SET", "requirepass", "right"]);
      const wrong = await cli("doctor", url.replace("//", "//:wrong@"));
      expect(wrong).toMatchObject({
        status: 69,
        stdout: expect.stringMatching(/^problem +refused .*\n +→ check user, password/m),
      });
    },
    LONGEST,
  );

  test(
    "finds missing tables and commits that are not on disk in a MariaDB, and a wrong password",
    async () => {
      await using server = await startServer("mariadb");
      const { url } = server;
      const missing = await cli("doctor", url);
      expect(missing).toMatchObject({
        status: 1,
        stdout: expect.stringMatching(
          /^problem +tables .*0001-locks.*\n +→ run "lockstep migrate/m,
        ),
      });
      expect(await cli("migrate", "--status", "--store", url)).toMatchObject({
        status: 1,
        stdout: expect.stringContaining("pending  0001-locks"),
      });
      expect((await cli("migrate", "--print", "--store", url)).stdout).toContain("lockstep_lock (");
      expect(await cli("migrate", "--store", url)).toMatchObject({ status: 0 });
      await using store = await open(url);
      await global(store, "innodb_flush_log_at_trx_commit = 1");
      expect(await findingsOf(url)).toMatchObject([
        { check: "reachable", status: "ok" },
        { check: "clock", status: "ok" },
        { check: "version", status: "ok", message: expect.stringContaining("MariaDB 1") },
        { check: "durability", status: "ok" },
        { check: "isolation", status: "ok" },
        { check: "tables", status: "ok" },
        { check: "privileges", status: "ok" },
        { check: "first lock", status: "ok" },
        { check: "durable write", status: "ok" },
      ]);
      await global(store, "innodb_flush_log_at_trx_commit = 2");
      expect(problemsOf(await findingsOf(url))).toMatchObject([
        {
          check: "durability",
          message: expect.stringContaining("innodb_flush_log_at_trx_commit = 2"),
        },
      ]);
      const wrong = url.replace(/\/\/[^@]*@/, "//nobody:wrong@");
      expect(await cli("doctor", wrong)).toMatchObject({
        status: 69,
        stdout: expect.stringMatching(/^problem +refused /),
      });
    },
    LONGEST,
  );

  test(
    "finds what may lose locks in a PostgreSQL",
    async () => {
      const [server] = inject("postgresServers");
      if (!server) throw new Error("the server is missing");
      const { url, drop } = await temporaryDatabase(server);
      expect(await cli("migrate", "--store", url)).toMatchObject({ status: 0 });
      const found = await findingsOf(url);
      expect(found).toContainEqual({
        check: "version",
        status: "ok",
        message: expect.stringMatching(/^PostgreSQL \d/),
      });
      expect(found).toContainEqual(expect.objectContaining({ check: "durable write" }));
      await using store = await open(url);
      await store.database.batch([
        raw(`ALTER DATABASE ${new URL(url).pathname.slice(1)} SET synchronous_commit = off`),
      ]);
      await store.close();
      expect(problemsOf(await findingsOf(url))).toContainEqual(
        expect.objectContaining({
          check: "durability",
          cure: expect.stringContaining("synchronous_commit = on"),
        }),
      );
      await drop();
    },
    LONGEST,
  );

  test(
    "finds a closed port",
    async () => {
      for (const scheme of ["redis", "etcd", "zookeeper", "redlock"]) {
        const closed = await cli("doctor", `${scheme}://127.0.0.1:1`);
        expect(closed).toMatchObject({
          status: 69,
          stdout: expect.stringMatching(/^problem +unreachable /),
        });
      }
    },
    LONGEST,
  );

  test("finds an old server by its version", () => {
    expect(judgeVersion("MySQL", "5.7.44-log", "8.0")).toMatchObject({
      status: "problem",
      message: "MySQL 5.7.44-log is too old",
      cure: "upgrade to MySQL 8.0 or later",
    });
    expect(judgeVersion("MariaDB", "10.5.29-MariaDB", "10.6").status).toBe("problem");
    expect(judgeVersion("MariaDB", "10.11.6-MariaDB", "10.6").status).toBe("ok");
    expect(judgeVersion("Redis", "6.2.14", "7.0").status).toBe("problem");
    expect(judgeVersion("Redis", "8.0.1", "7.0").status).toBe("ok");
  });
});

async function global(store: Awaited<ReturnType<typeof open>>, setting: string): Promise<void> {
  await store.database.batch([raw(`SET GLOBAL ${setting}`)]);
}
