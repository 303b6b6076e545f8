import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdir, realpath } from "node:fs/promises";
import { createServer } from "node:http";
import { type AddressInfo, connect, createServer as createTcpServer } from "node:net";
import { dirname, join } from "node:path";
import { describe, expect, inject, test } from "vitest";
import { raw } from "../../core/database/sql.ts";
import { dynamodbTable } from "../../core/stores/dynamodb/client/table.ts";
import { put } from "../../core/stores/etcd/client/etcd.ts";
import { type Finding, judgeVersion } from "../../functions/doctor/finding.ts";
import { judgeSqliteDurability } from "../../functions/doctor/sql.ts";
import { open } from "../../infra/open.ts";
import { findOrThrow } from "../../infra/servers/binaries.ts";
import { KINDS } from "../../infra/servers/kinds.ts";
import { isEtcdHealthy } from "../../infra/servers/probes.ts";
import { startServer } from "../../infra/servers/start.ts";
import { cli, type Finished, startCli } from "../support/cli.ts";
import { cliInProcess } from "../support/cli-in-process.ts";
import { findingsOf } from "../support/doctor.ts";
import { anyTable } from "../support/dynamodb-under-test.ts";
import { connectTo, temporaryDatabase, temporaryFile } from "../support/under-test.ts";
import { until } from "../support/until.ts";

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
      const healthy = await cliInProcess("doctor", url, "--json");
      expect(healthy).toMatchObject({ status: 0 });
      expect(JSON.parse(healthy.stdout)).toContainEqual({
        check: "durability",
        status: "ok",
        message: "appendfsync always: no lock is lost",
      });
      const truncation = { check: "append-only file", status: "note" };
      expect(JSON.parse(healthy.stdout)).toContainEqual(expect.objectContaining(truncation));
      await using store = await open(url);
      await store.redis.call(["CONFIG", "SET", "aof-load-truncated", "no"]);
      expect(await findingsOf(url)).not.toContainEqual(expect.objectContaining(truncation));
      await store.redis.call(["CONFIG", "SET", "appendfsync", "no"]);
      expect(problemsOf(await findingsOf(url))).toMatchObject([
        { check: "durability", message: expect.stringContaining("appendfsync no: a crash") },
      ]);
      await store.redis.call(["CONFIG", "SET", "appendfsync", "always"]);
      await store.redis.call(["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]);
      const evicting = await cliInProcess("doctor", url);
      expect(evicting).toMatchObject({
        status: 1,
        stdout: expect.stringMatching(/^problem +eviction .*allkeys-lru.*locks, fences and stock/m),
      });
      await store.redis.call(["CONFIG", "SET", "requirepass", "right"]);
      const wrong = await cliInProcess("doctor", url.replace("//", "//:wrong@"));
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
      const missing = await cliInProcess("doctor", url);
      expect(missing).toMatchObject({
        status: 1,
        stdout: expect.stringMatching(
          /^problem +tables .*0001-locks.*\n +→ run "lockstep migrate/m,
        ),
      });
      expect(await cliInProcess("migrate", "--status", "--store", url)).toMatchObject({
        status: 1,
        stdout: expect.stringContaining("pending  0001-locks"),
      });
      expect((await cliInProcess("migrate", "--print", "--store", url)).stdout).toContain(
        "lockstep_lock (",
      );
      expect(await cliInProcess("migrate", "--store", url)).toMatchObject({ status: 0 });
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
        { check: "privileges", status: "ok", message: "stock can be changed" },
        { check: "privileges", status: "ok", message: "runs can be changed" },
      ]);
      await store.database.batch([
        raw("CREATE USER clerk IDENTIFIED BY 'clerk'"),
        raw("GRANT SELECT ON *.* TO clerk"),
        raw("GRANT INSERT, UPDATE, DELETE ON lockstep_lock TO clerk"),
        raw("GRANT INSERT, UPDATE, DELETE ON lockstep_fence TO clerk"),
      ]);
      const clerk = await cliInProcess("doctor", url.replace(/\/\/[^@]*@/, "//clerk:clerk@"));
      expect(clerk).toMatchObject({
        status: 69,
        stdout: expect.stringMatching(/^ok +privileges +locks can.*^problem +refused .*denied/ms),
      });
      await global(store, "innodb_flush_log_at_trx_commit = 2");
      expect(problemsOf(await findingsOf(url))).toMatchObject([
        {
          check: "durability",
          message: expect.stringContaining("innodb_flush_log_at_trx_commit = 2"),
        },
      ]);
      const wrong = url.replace(/\/\/[^@]*@/, "//nobody:wrong@");
      expect(await cliInProcess("doctor", wrong)).toMatchObject({
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
      expect(await cliInProcess("migrate", "--store", url)).toMatchObject({ status: 0 });
      const found = await findingsOf(url);
      expect(found).toContainEqual({
        check: "version",
        status: "ok",
        message: expect.stringMatching(/^PostgreSQL \d/),
      });
      expect(found).toContainEqual(expect.objectContaining({ check: "durable write" }));
      expect(found).toContainEqual({
        check: "isolation",
        status: "ok",
        message: "read committed; the default of your own is read committed",
      });
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
    "finds functions that a copy of a PostgreSQL lacks, until they are made again",
    async () => {
      const [server] = inject("postgresServers");
      if (!server) throw new Error("the server is missing");
      const { url, open: openDatabase, drop } = await temporaryDatabase(server);
      expect(await cliInProcess("migrate", "--store", url)).toMatchObject({ status: 0 });
      await using database = openDatabase();
      await database.batch([raw("DROP FUNCTION lockstep_decrement")]);
      const missing = { status: 1, stdout: expect.stringMatching(/^pending +0014-functions/m) };
      expect(await cliInProcess("migrate", "--status", "--store", url)).toMatchObject(missing);
      expect(problemsOf(await findingsOf(url))).toContainEqual(
        expect.objectContaining({ check: "tables", message: expect.stringContaining("0014") }),
      );
      const made = { status: 0, stdout: expect.stringContaining("applied 0014-functions") };
      expect(await cliInProcess("migrate", "--store", url)).toMatchObject(made);
      expect(await cliInProcess("migrate", "--status", "--store", url)).toMatchObject({
        status: 0,
      });
      expect(await findingsOf(url)).toContainEqual(
        expect.objectContaining({ check: "tables", status: "ok" }),
      );
      await drop();
    },
    LONGEST,
  );

  test(
    "tells whether the commits of a PostgreSQL wait for a standby",
    async () => {
      await using server = await startServer("postgres");
      const { url } = server;
      expect(await cliInProcess("migrate", "--store", url)).toMatchObject({ status: 0 });
      const replication = async () =>
        (await findingsOf(url)).find(({ check }) => check === "replication");
      expect(await replication()).toEqual({
        check: "replication",
        status: "ok",
        message: "synchronous_standby_names is empty; no standby is connected",
      });
      const admin = await connectTo(url);
      const isStreaming = async () => {
        const state = raw("SELECT state FROM pg_stat_replication");
        await using store = await open(url);
        return (await store.database.read(state)).some((row) => row.state === "streaming");
      };
      const tool = join(
        dirname(await realpath(await findOrThrow(KINDS.postgres, () => {}))),
        "pg_receivewal",
      );
      const folder = join(server.nodes[0]?.config.folder ?? expect.fail(), "standby");
      await mkdir(folder);
      // Takes the commits as a standby does, and confirms them once they are on its disk.
      using _ = spawn(tool, ["-D", folder, "-d", url, "--synchronous"], { stdio: "ignore" });
      await until(isStreaming);
      expect(await replication()).toMatchObject({
        status: "note",
        message: expect.stringMatching(/^synchronous_standby_names is empty: a failover may lose/),
        cure: "set synchronous_standby_names",
      });
      await admin.query("ALTER SYSTEM SET synchronous_standby_names = 'pg_receivewal'");
      await admin.query("SELECT pg_reload_conf()");
      expect(await replication()).toMatchObject({
        status: "ok",
        message: "commits wait for standbys: pg_receivewal",
      });
      await admin.query("ALTER DATABASE postgres SET synchronous_commit = local");
      expect(await replication()).toMatchObject({
        status: "note",
        message: expect.stringContaining("synchronous_commit = local: a failover may lose"),
        cure: "set synchronous_commit = on",
      });
      await admin.end();
    },
    LONGEST,
  );

  test(
    "finds missing tables, commits that are not on disk, and a wrong password in a PostgreSQL",
    async () => {
      await using server = await startServer("postgres");
      const { url } = server;
      expect(await cliInProcess("doctor", url)).toMatchObject({
        status: 1,
        stdout: expect.stringMatching(
          /^problem +tables .*0001-locks.*\n +→ run "lockstep migrate/m,
        ),
      });
      const admin = await connectTo(url);
      await admin.query("ALTER SYSTEM SET fsync = off");
      await admin.query("SELECT pg_reload_conf()");
      expect(problemsOf(await findingsOf(url))).toContainEqual(
        expect.objectContaining({ check: "durability", cure: "set fsync = on" }),
      );
      await admin.query(`DO $$ BEGIN EXECUTE format(
        'COPY (SELECT ''host all all 127.0.0.1/32 scram-sha-256'') TO %L',
        current_setting('hba_file')); END $$`);
      await admin.query("SELECT pg_reload_conf()");
      await admin.end();
      const refused = expect.stringMatching(/^problem +refused .*\n +→ check user, password/);
      await until(async () => (await cliInProcess("doctor", url)).status === 69);
      const wrong = await cliInProcess("doctor", url.replace("postgres@", "postgres:wrong@"));
      expect(wrong).toMatchObject({ status: 69, stdout: refused });
    },
    LONGEST,
  );

  test(
    "finds missing tables, missing and wrong credentials, and capacity that throttles in DynamoDB",
    async () => {
      // In processes of their own: a signature must not come too late, whatever this one has to do.
      const { url, open: openTable } = await anyTable();
      const healthy = await cli("doctor", url, "--json");
      expect(healthy).toMatchObject({ status: 0 });
      expect(JSON.parse(healthy.stdout)).toMatchObject([
        { check: "reachable", status: "ok" },
        { check: "clock", status: "ok" },
        { check: "tables", status: "ok", message: "the table is active" },
        { check: "capacity", status: "ok", message: "on demand" },
        { check: "durability", status: "note", cure: "turn deletion protection on" },
        { check: "privileges", status: "ok" },
        { check: "first lock", status: "ok" },
        { check: "durable write", status: "ok" },
        { check: "privileges", status: "ok", message: "stock can be changed" },
        { check: "privileges", status: "ok", message: "runs can be changed" },
      ]);

      expect(await cli("doctor", url.replace("/test-", "/other-"))).toMatchObject({
        status: 1,
        stdout:
          'problem  tables         there is no such table\n         → run "lockstep migrate"\n',
      });
      const anonymous = url.replace("key:secret@", "");
      const env = { AWS_ACCESS_KEY_ID: undefined, AWS_SECRET_ACCESS_KEY: undefined };
      expect(await startCli(["doctor", anonymous], { env }).finished).toMatchObject({
        status: 69,
        stdout: expect.stringMatching(
          /^problem +refused .*no credentials.*\n +→ set AWS_ACCESS_KEY_ID/,
        ),
      });
      expect(await cli("doctor", url.replace("key:", "not-a-key:"))).toMatchObject({
        status: 69,
        stdout: expect.stringMatching(/^problem +refused .*\n +→ check the credentials/),
      });

      const table = `test-${crypto.randomUUID()}`;
      await using other = openTable({ table });
      const {
        TableName: _,
        BillingMode: __,
        ...definition
      } = JSON.parse(dynamodbTable(other, table).definition);
      const ProvisionedThroughput = { ReadCapacityUnits: 7, WriteCapacityUnits: 3 };
      await other.manage("CreateTable", { ...definition, ProvisionedThroughput });
      expect(await findingsOf(url.replace(/test-[\w-]+/, table))).toContainEqual(
        expect.objectContaining({
          check: "capacity",
          status: "note",
          message: expect.stringContaining("7 reads and 3 writes"),
        }),
      );
    },
    LONGEST,
  );

  test(
    "finds that DynamoDB throttles",
    async ({ onTestFinished }) => {
      const throttling = createServer((_, response) => {
        const type = "com.amazonaws.dynamodb.v20120810#ThrottlingException";
        response.writeHead(400).end(JSON.stringify({ __type: type, message: "too many" }));
      }).listen(0, "127.0.0.1");
      onTestFinished(() => void throttling.close());
      await once(throttling, "listening");
      const { port } = throttling.address() as AddressInfo;
      const url = `dynamodb://key:secret@local/shop?endpoint=http://127.0.0.1:${port}`;
      // In a process of its own: this one answers its requests, whatever else it has to do.
      expect(await cli("doctor", url)).toMatchObject({
        status: 69,
        stdout: expect.stringMatching(
          /^problem +unreachable .*ThrottlingException.*\n +→ give the table capacity on demand/,
        ),
      });
    },
    LONGEST,
  );

  test(
    "finds slots that nobody serves in a Redis Cluster, and a wrong password",
    async () => {
      await using server = await startServer("redis-cluster", {
        args: ["--appendonly", "yes", "--appendfsync", "always"],
      });
      const { url, nodes } = server;
      const healthy = await cliInProcess("doctor", url);
      expect(healthy).toMatchObject({
        status: 0,
        stdout: expect.stringMatching(
          /^ok +cluster +16384 of 16384 slots are served, by 3 masters\nok +servers +3 of 3 answer\nok +durability/m,
        ),
      });
      const lossy = `127.0.0.1:${nodes[1]?.config.port}`;
      await using one = await open(`redis://${lossy}`);
      await one.redis.call(["CONFIG", "SET", "appendfsync", "no"]);
      expect(problemsOf(await findingsOf(url))).toMatchObject([
        { check: "durability", message: expect.stringContaining(`(${lossy})`) },
      ]);
      await one.redis.call(["CONFIG", "SET", "appendfsync", "always"]);

      expect(await cliInProcess("doctor", url.replace("//", "//nobody:wrong@"))).toMatchObject({
        status: 69,
        stdout: expect.stringMatching(/^problem +refused .*\n +→ check user, password/),
      });

      const set = (name: string, value: string) =>
        Promise.all(
          nodes.map(async ({ config }) => {
            await using node = await open(`redis://127.0.0.1:${config.port}`);
            // Two of the nodes are away by then.
            await node.redis.call(["CONFIG", "SET", name, value]).catch(() => {});
          }),
        );
      await using store = await open(url);
      const [, own] = (await store.redis.call(["CONFIG", "GET", "port"])) as readonly string[];
      const lost = nodes.slice(0, 3).findIndex(({ config }) => config.port !== Number(own));
      await Promise.all([nodes[lost], nodes[lost + 3]].map((node) => node?.kill("SIGKILL")));
      // Each node learns of it at a time of its own.
      const asking = (answers: (finished: Finished) => boolean) =>
        until(async () => {
          const finished = await cliInProcess("doctor", url);
          return answers(finished) && finished;
        });
      const down = /^problem +unreachable .*cluster is down\n +→ .*--cluster fix/;
      expect(await asking(({ stdout }) => down.test(stdout))).toMatchObject({ status: 69 });

      await set("cluster-require-full-coverage", "no");
      expect(await asking(({ status }) => status !== 69)).toMatchObject({
        status: 1,
        stdout: expect.stringMatching(
          /^problem +cluster +109\d\d of 16384 .*\n +→ .*--cluster fix/m,
        ),
      });
    },
    2 * LONGEST,
  );

  test(
    "finds a server that is away and used up space in an etcd",
    async () => {
      await using cluster = await startServer("etcd-cluster", {
        args: ["--quota-backend-bytes=3000000"],
      });
      const { url, nodes } = cluster;
      expect(await cliInProcess("doctor", url)).toMatchObject({
        status: 0,
        stdout: expect.stringMatching(/^ok +servers +3 of 3 answer\nok +version +etcd 3\./m),
      });
      await nodes[2]?.kill("SIGKILL");
      // If it was the leader, the others are not healthy before they have another one.
      for (const { config } of nodes.slice(0, 2)) await until(() => isEtcdHealthy(config.port));
      expect(await cliInProcess("doctor", url)).toMatchObject({
        status: 0,
        stdout: expect.stringMatching(/^note +servers +2 of 3 .*; not 127.*\n +→ start them/m),
      });
      await using store = await open(url);
      const fill = async () => {
        const value = "x".repeat(500_000);
        for (let i = 0; i < 10; i += 1)
          await store.etcd.txn({ when: [], do: [put(`${i}`, value)] });
      };
      await until(async () => {
        await fill().catch(() => {});
        return problemsOf(await findingsOf(url)).some(({ check }) => check === "health");
      });
      expect(await cliInProcess("doctor", url)).toMatchObject({
        stdout: expect.stringMatching(/^problem +health +not healthy: .*\n +→ .*alarm list/m),
      });
      const space = { check: "space", message: expect.stringMatching(/^\d+ % of the quota of /) };
      expect(await findingsOf(url)).toContainEqual(expect.objectContaining(space));
    },
    LONGEST,
  );

  test(
    "finds masters of a Redlock that are away, or may lose locks",
    async () => {
      await using server = await startServer("redlock", {
        args: ["--appendonly", "yes", "--appendfsync", "always"],
      });
      const { url, nodes } = server;
      expect(await cliInProcess("doctor", url)).toMatchObject({
        status: 0,
        stdout: expect.stringMatching(/^ok +servers +5 of 5 answer\nok +version +Redis 7/m),
      });
      const [first, second] = nodes.map(({ config }) => `127.0.0.1:${config.port}`);
      await using lossy = await open(`redis://${first}`);
      await lossy.redis.call(["CONFIG", "SET", "appendfsync", "no"]);
      await nodes[1]?.kill("SIGKILL");
      const found = await findingsOf(url);
      expect(found).toContainEqual(
        expect.objectContaining({ check: "servers", message: `4 of 5 answer; not ${second}` }),
      );
      expect(problemsOf(found)).toMatchObject([
        { check: "durability", message: expect.stringContaining(`(${first})`) },
      ]);
    },
    LONGEST,
  );

  test(
    "finds a closed port",
    async () => {
      const closed = [
        ...["redis", "redis+cluster", "etcd", "zookeeper", "redlock"].map(
          (scheme) => `${scheme}://127.0.0.1:1`,
        ),
        "redis+sentinel://127.0.0.1:1/shop",
        "mysql://127.0.0.1:1/shop",
        "postgres://127.0.0.1:1/shop",
        "dynamodb://key:secret@local/shop?endpoint=http://127.0.0.1:1",
      ];
      for (const url of closed) {
        expect(await cliInProcess("doctor", url), url).toMatchObject({
          status: 69,
          stdout: expect.stringMatching(/^problem +unreachable .*\n +→ check that the server runs/),
        });
      }
    },
    2 * LONGEST,
  );

  test(
    "names the settings of a SQLite file, and judges worse ones",
    async () => {
      const { file, remove } = await temporaryFile();
      const url = `sqlite:${file}`;
      const missing = await cliInProcess("doctor", url);
      expect(missing.stdout).toMatch(
        /^note +tables +\S+ does not exist: the first write makes it$/m,
      );
      expect(missing.stdout).not.toContain("privileges");
      const folderless = await cliInProcess("doctor", `${url}/sub/shop.db`);
      expect(folderless).toMatchObject({
        status: 1,
        stdout: expect.stringContaining("the folder"),
      });
      await cliInProcess("migrate", "--store", url);
      const healthy = await cliInProcess("doctor", url);
      expect(healthy).toMatchObject({
        status: 0,
        stdout: expect.stringMatching(
          /^ok +durability +journal_mode wal, synchronous 2: each.*^ok +privileges +stock can be changed\nok +privileges +runs can be changed$/ms,
        ),
      });
      await remove();
      expect(judgeSqliteDurability("wal", 1)).toMatchObject({ status: "problem" });
      expect(judgeSqliteDurability("delete", 2)).toMatchObject({ status: "note" });
    },
    LONGEST,
  );

  test(
    "tells the version of each ZooKeeper server, and what ZooKeeper does not tell",
    async () => {
      const [server] = inject("zookeeperServers");
      if (!server) throw new Error("the server is missing");
      expect(await cliInProcess("doctor", server.url)).toMatchObject({
        status: 0,
        stdout: expect.stringMatching(
          /^ok +servers +(\d) of \1 answer\nok +version +ZooKeeper 3\.\d+\.\d+\nnote +durability .*forceSync/m,
        ),
      });
    },
    LONGEST,
  );

  test(
    "ends with 1 for a server that is too old",
    async ({ onTestFinished }) => {
      await using server = await startServer("redis", {
        args: ["--appendonly", "yes", "--appendfsync", "always"],
      });
      // A real server, whose version is another one on its way to the client.
      const aged = createTcpServer((client) => {
        const upstream = connect(Number(new URL(server.url).port), "127.0.0.1");
        client.pipe(upstream);
        upstream.on("data", (data) => {
          const said = data.toString("latin1").replace(/redis_version:7\./, "redis_version:6.");
          client.write(Buffer.from(said, "latin1"));
        });
        for (const socket of [client, upstream]) socket.on("error", () => {});
        client.on("close", () => upstream.destroy());
      }).listen(0, "127.0.0.1");
      onTestFinished(() => void aged.close());
      await once(aged, "listening");
      const { port } = aged.address() as AddressInfo;
      expect(await cli("doctor", `redis://127.0.0.1:${port}`)).toMatchObject({
        status: 1,
        stdout: expect.stringMatching(/^problem +version +Redis 6\..* is too old\n +→ upgrade/m),
      });
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
    expect(judgeVersion("PostgreSQL", "12.22 (Debian 12.22-1)", "13").status).toBe("problem");
    expect(judgeVersion("PostgreSQL", "15.8", "13").status).toBe("ok");
    expect(judgeVersion("Redis", "6.2.14", "7.0").status).toBe("problem");
    expect(judgeVersion("Redis", "8.0.1", "7.0").status).toBe("ok");
  });
});

async function global(store: Awaited<ReturnType<typeof open>>, setting: string): Promise<void> {
  await store.database.batch([raw(`SET GLOBAL ${setting}`)]);
}
