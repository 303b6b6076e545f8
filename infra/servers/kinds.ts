import { join } from "node:path";

/** A place for one server process: its port on loopback and a data directory of its own. */
export interface Place {
  readonly port: number;
  readonly folder: string;
}

export type Command = readonly [file: string, ...args: string[]];

/** How to start one kind of server. A new server is an entry in `KINDS` and a service in compose.yaml. */
export interface ServerKind {
  /** How many processes make up one of it. */
  readonly size: number;

  /** Any one of them will do. */
  readonly binaries: readonly string[];

  /** What to install on Debian when none is there. */
  readonly packages: readonly string[];

  /** The service in compose.yaml. */
  readonly container: string;

  /** Files to write into the folder before anything runs, by name. */
  files?(place: Place): Readonly<Record<string, string>>;

  /** Fills the data directory, once. */
  prepare?(binary: string, version: string, place: Place): Command;

  start(binary: string, version: string, place: Place, all: readonly Place[]): Command;

  /** The store's URL. */
  url(ports: readonly number[]): string;
}

const asRoot = process.getuid?.() === 0 ? ["--user=root"] : [];

export const KINDS = {
  /** MySQL or MariaDB, whichever is there; root has no password, and the database is called lockstep. */
  mysql: {
    size: 1,
    binaries: ["mysqld", "mariadbd"],
    // The client package has my_print_defaults, which mariadb-install-db calls.
    packages: ["mariadb-server-core", "mariadb-client-core"],
    container: "mysql",
    files: () => ({ "init.sql": "CREATE DATABASE IF NOT EXISTS lockstep;\n" }),
    prepare: (binary, version, { folder }) =>
      version.includes("MariaDB")
        ? [
            "mariadb-install-db",
            "--no-defaults",
            ...asRoot,
            dataDir(folder),
            "--auth-root-authentication-method=normal",
            "--skip-test-db",
          ]
        : [binary, "--no-defaults", ...asRoot, "--initialize-insecure", dataDir(folder)],
    start: (binary, version, { port, folder }) => [
      binary,
      "--no-defaults",
      ...asRoot,
      dataDir(folder),
      `--port=${port}`,
      "--bind-address=127.0.0.1",
      `--socket=${join(folder, "socket")}`,
      `--pid-file=${join(folder, "pid")}`,
      `--init-file=${join(folder, "init.sql")}`,
      ...(version.includes("MariaDB") ? [] : ["--mysqlx=OFF"]),
    ],
    url: ([port]) => `mysql://root@127.0.0.1:${port}/lockstep`,
  },
} as const satisfies Readonly<Record<string, ServerKind>>;

export type ServerName = keyof typeof KINDS;

function dataDir(folder: string): string {
  return `--datadir=${join(folder, "data")}`;
}
