import { join } from "node:path";
import type { Requirement } from "./binaries.ts";
import { accepts, isHealthy, isInSync, pongs } from "./probes.ts";
import { zookeeper } from "./zookeeper.ts";

/** A place for one server process: its ports on loopback and a data directory of its own. */
export interface Place {
  /** Where clients connect. */
  readonly port: number;

  /** Where its peers connect. */
  readonly peerPorts: readonly number[];
  readonly folder: string;
}

export type Command = readonly [file: string, ...args: string[]];

/** How to start one kind of server. A new server is an entry in `KINDS` and services in compose.yaml. */
export interface ServerKind extends Requirement {
  /** How many processes make up one of it. */
  readonly size: number;

  /** How many ports each of them has for its peers. Default none. */
  readonly peerPorts?: number;

  /** The services in compose.yaml, one for each process. */
  readonly containers: readonly string[];

  /** The arguments with which the binary prints the server's version. Default --version. */
  readonly version?: readonly string[];

  /** Files to write into the folder before anything runs, by name. */
  files?(place: Place, all: readonly Place[]): Readonly<Record<string, string>>;

  /** Fills the data directory, once. */
  prepare?(binary: string, version: string, place: Place): Command;

  start(binary: string, version: string, place: Place, all: readonly Place[]): Command;

  /** Whether the process behind this port serves by now. */
  serves(port: number): Promise<boolean>;

  /** The store's URL. */
  url(ports: readonly number[]): string;
}

const asRoot = process.getuid?.() === 0 ? ["--user=root"] : [];

const etcd = {
  size: 1,
  peerPorts: 1,
  binaries: ["etcd"],
  packages: ["etcd-server", "etcd-client"],
  containers: ["etcd"],
  start: (binary, _version, place, all) => [
    binary,
    `--name=${etcdName(place)}`,
    `--data-dir=${join(place.folder, "data")}`,
    `--listen-client-urls=http://127.0.0.1:${place.port}`,
    `--advertise-client-urls=http://127.0.0.1:${place.port}`,
    `--listen-peer-urls=${etcdPeer(place)}`,
    `--initial-advertise-peer-urls=${etcdPeer(place)}`,
    `--initial-cluster=${all.map((each) => `${etcdName(each)}=${etcdPeer(each)}`).join(",")}`,
  ],
  serves: isHealthy,
  url: (ports) => `etcd://${ports.map((port) => `127.0.0.1:${port}`).join(",")}`,
} as const satisfies ServerKind;

const redis = {
  size: 1,
  binaries: ["redis-server"],
  packages: ["redis-server"],
  containers: ["redis"],
  start: (binary, _version, { port, folder }) => [
    binary,
    "--port",
    String(port),
    "--bind",
    "127.0.0.1",
    "--dir",
    join(folder, "data"),
    // Nothing is kept over a restart.
    "--save",
    "",
    "--appendonly",
    "no",
    // Its title would take the place of the command line, by which a process is found again.
    "--set-proc-title",
    "no",
    "--repl-diskless-sync-delay",
    "0",
  ],
  serves: pongs,
  url: ([port]) => `redis://127.0.0.1:${port}`,
} as const satisfies ServerKind;

export const KINDS = {
  /** MySQL or MariaDB, whichever is there; root has no password, and the database is called lockstep. */
  mysql: {
    size: 1,
    binaries: ["mysqld", "mariadbd"],
    // The client package has my_print_defaults, which mariadb-install-db calls.
    packages: ["mariadb-server-core", "mariadb-client-core"],
    containers: ["mysql"],
    files: () => ({ "init.sql": "CREATE DATABASE IF NOT EXISTS lockstep;\n" }),
    prepare: (binary, version, { folder }) =>
      version.includes("MariaDB")
        ? [
            "mariadb-install-db",
            "--no-defaults",
            ...asRoot,
            ...folders(folder),
            "--auth-root-authentication-method=normal",
            "--skip-test-db",
          ]
        : [binary, "--no-defaults", ...asRoot, "--initialize-insecure", ...folders(folder)],
    start: (binary, version, { port, folder }) => [
      binary,
      "--no-defaults",
      ...asRoot,
      ...folders(folder),
      `--port=${port}`,
      "--bind-address=127.0.0.1",
      `--socket=${join(folder, "socket")}`,
      `--pid-file=${join(folder, "pid")}`,
      `--init-file=${join(folder, "init.sql")}`,
      ...(version.includes("MariaDB") ? [] : ["--mysqlx=OFF"]),
    ],
    serves: accepts,
    url: ([port]) => `mysql://root@127.0.0.1:${port}/lockstep`,
  },

  etcd,
  "etcd-cluster": { ...etcd, size: 3, containers: ["etcd-1", "etcd-2", "etcd-3"] },

  redis,
  /** A primary, which the URL names, and its replica. A replica serves once it has all that its primary has. */
  "redis-replica": {
    ...redis,
    size: 2,
    containers: ["redis-replica-1", "redis-replica-2"],
    start: (binary, version, place, all) => {
      const [primary] = all as readonly [Place, ...Place[]];
      const replicaOf = ["--replicaof", `127.0.0.1 ${primary.port}`];
      return [...redis.start(binary, version, place), ...(place === primary ? [] : replicaOf)];
    },
    serves: isInSync,
  },
  /** Servers that know nothing of each other. */
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
} as const satisfies Readonly<Record<string, ServerKind>>;

export type ServerName = keyof typeof KINDS;

function etcdName({ port }: Place): string {
  return `node-${port}`;
}

function etcdPeer({ peerPorts: [port] }: Place): string {
  return `http://127.0.0.1:${port}`;
}

/** When a server starts, it removes what others have in a folder for temporary tables that they share. */
function folders(folder: string): readonly string[] {
  return [`--datadir=${join(folder, "data")}`, `--tmpdir=${folder}`];
}
