import { dirname, join } from "node:path";
import { dynamodb } from "./dynamodb.ts";
import { acceptsConnections, acceptsLogins, isEtcdHealthy, isReplicaInSync } from "./probes.ts";
import { redis, redisCluster, redisSentinel } from "./redis.ts";
import type { NodeConfig, ServerKind } from "./server-kind.ts";
import { zookeeper } from "./zookeeper.ts";

const asRoot = process.getuid?.() === 0 ? ["--user=root"] : [];

const etcd = {
  size: 1,
  peerPorts: 1,
  binaries: ["etcd"],
  packages: ["etcd-server", "etcd-client"],
  containers: ["etcd"],
  start: (binary, _version, config, all) => [
    binary,
    `--name=${etcdName(config)}`,
    `--data-dir=${join(config.folder, "data")}`,
    `--listen-client-urls=http://${config.host}:${config.port}`,
    `--advertise-client-urls=http://127.0.0.1:${config.port}`,
    `--listen-peer-urls=${etcdPeer(config)}`,
    `--initial-advertise-peer-urls=${etcdPeer(config)}`,
    `--initial-cluster=${all.map((each) => `${etcdName(each)}=${etcdPeer(each)}`).join(",")}`,
  ],
  serves: isEtcdHealthy,
  url: (ports) => `etcd://${ports.map((port) => `127.0.0.1:${port}`).join(",")}`,
} as const satisfies ServerKind;

/** The settings of MySQL and MariaDB: root has no password, the database is called lockstep. */
const sql = {
  size: 1,
  hasWallClock: true,
  files: () => ({ "init.sql": "CREATE DATABASE IF NOT EXISTS lockstep;\n" }),
  start: (binary, _version, { port, folder }) => [
    binary,
    "--no-defaults",
    ...asRoot,
    ...folders(folder),
    `--port=${port}`,
    "--bind-address=127.0.0.1",
    `--socket=${join(folder, "socket")}`,
    `--pid-file=${join(folder, "pid")}`,
    `--init-file=${join(folder, "init.sql")}`,
    // Suites that run side by side open more than the default of 151.
    "--max-connections=500",
  ],
  serves: acceptsConnections,
  url: ([port]) => `mysql://root@127.0.0.1:${port}/lockstep`,
} as const satisfies Partial<ServerKind>;

/** The user postgres has no password. */
const postgres = {
  size: 1,
  binaries: ["postgres"],
  packages: ["postgresql"],
  containers: ["postgres"],
  user: "postgres",
  hasWallClock: true,
  stopSignal: "SIGQUIT",
  prepare: (binary, _version, { folder }) => [
    join(dirname(binary), "initdb"),
    `--pgdata=${join(folder, "data")}`,
    "--username=postgres",
    "--auth=trust",
    "--encoding=UTF8",
    "--no-locale",
    "--no-sync",
  ],
  start: (binary, _version, { port, folder }) => [
    binary,
    "-D",
    join(folder, "data"),
    "-p",
    String(port),
    "-k",
    folder,
    "-c",
    "listen_addresses=127.0.0.1",
    // Suites that run side by side open more than the default of 100.
    "-c",
    "max_connections=500",
    // In the data folder: a killed server leaves its segments behind in /dev/shm.
    "-c",
    "dynamic_shared_memory_type=mmap",
  ],
  serves: acceptsLogins,
  url: ([port]) => `postgres://postgres@127.0.0.1:${port}/postgres`,
} as const satisfies ServerKind;

const PGBOUNCER = "/usr/sbin/pgbouncer";

/** Returns PgBouncer's configuration. It tries a server that is not up yet again after a second, not after 15. */
function pooling({ port, folder }: NodeConfig, [server]: readonly NodeConfig[]): string {
  return `[databases]
* = host=127.0.0.1 port=${server?.port} user=postgres
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = ${port}
unix_socket_dir = ${folder}
auth_type = any
pool_mode = transaction
max_client_conn = 1000
server_login_retry = 1
`;
}

export const KINDS = {
  mariadb: {
    ...sql,
    binaries: ["mariadbd"],
    // The client package has my_print_defaults, which mariadb-install-db calls.
    packages: ["mariadb-server-core", "mariadb-client-core"],
    containers: ["mariadb"],
    prepare: (_binary, _version, { folder }) => [
      "mariadb-install-db",
      "--no-defaults",
      ...asRoot,
      ...folders(folder),
      "--auth-root-authentication-method=normal",
      "--skip-test-db",
    ],
  },

  /** Debian has no MySQL package, and its MariaDB packages install a mysqld. */
  mysql: {
    ...sql,
    binaries: ["mysqld"],
    isVersion: (version) => !version.includes("MariaDB"),
    packages: [],
    containers: ["mysql"],
    prepare: (binary, _version, { folder }) => [
      binary,
      "--no-defaults",
      ...asRoot,
      "--initialize-insecure",
      ...folders(folder),
    ],
    start: (binary, version, config) => [...sql.start(binary, version, config), "--mysqlx=OFF"],
  },

  postgres,

  /** A PgBouncer in transaction mode, which the URL names, in front of a PostgreSQL server. */
  pgbouncer: {
    ...postgres,
    size: 2,
    hasWallClock: false,
    needs: [PGBOUNCER],
    packages: [...postgres.packages, "pgbouncer"],
    containers: ["pgbouncer-server", "pgbouncer"],
    files: (config, all) => (isFirst(config, all) ? {} : { "pgbouncer.ini": pooling(config, all) }),
    prepare: (binary, version, config, all) =>
      isFirst(config, all) ? postgres.prepare(binary, version, config) : undefined,
    start: (binary, version, config, all) =>
      isFirst(config, all)
        ? postgres.start(binary, version, config)
        : [PGBOUNCER, join(config.folder, "pgbouncer.ini")],
    url: ([, port]) => postgres.url([port ?? 0]),
  },

  etcd,
  "etcd-cluster": { ...etcd, size: 3, containers: ["etcd-1", "etcd-2", "etcd-3"] },

  redis,
  /** A primary, which the URL names, and its replica. The replica is ready when it is in sync with its primary. */
  "redis-replica": {
    ...redis,
    size: 2,
    containers: ["redis-replica-1", "redis-replica-2"],
    start: (binary, version, config, all) => {
      const replicaOf = ["--replicaof", `127.0.0.1 ${all[0]?.port}`];
      return [...redis.start(binary, version, config), ...(isFirst(config, all) ? [] : replicaOf)];
    },
    serves: isReplicaInSync,
  },
  "redis-cluster": redisCluster,
  "redis-sentinel": redisSentinel,
  /** Independent servers. */
  redlock: {
    ...redis,
    size: 5,
    containers: ["redlock-1", "redlock-2", "redlock-3", "redlock-4", "redlock-5"],
    url: (ports) => `redlock://${ports.map((port) => `127.0.0.1:${port}`).join(",")}`,
  },
  zookeeper,
  "zookeeper-cluster": {
    ...zookeeper,
    size: 3,
    containers: ["zookeeper-1", "zookeeper-2", "zookeeper-3"],
  },
  dynamodb,
} as const satisfies Readonly<Record<string, ServerKind>>;

export type ServerName = keyof typeof KINDS;

/** Whether the process is the primary, or the server behind a proxy. */
function isFirst(config: NodeConfig, all: readonly NodeConfig[]): boolean {
  return config === all[0];
}

function etcdName({ port }: NodeConfig): string {
  return `node-${port}`;
}

function etcdPeer({ host, peerPorts: [port] }: NodeConfig): string {
  return `http://${host}:${port}`;
}

/** Returns the folder arguments. A starting server deletes the files of others from a shared tmpdir. */
function folders(folder: string): readonly string[] {
  return [`--datadir=${join(folder, "data")}`, `--tmpdir=${folder}`];
}
