import { pemOf } from "../pem.ts";
import type { MysqlOptions, MysqlTls } from "./database.ts";

/**
 * A pool of the package mysql2, of its callback or its promise interface.
 *
 * Lockstep reads the pool's settings and opens connections of its own: its guarantees depend on the settings of a session and
 * on the number of connections. The owner of the pool closes it.
 */
export interface Mysql2Pool {
  getConnection(...args: never[]): unknown;
  query(...args: never[]): unknown;
}

interface PoolSettings {
  readonly connectionLimit?: number;
  readonly connectionConfig: {
    readonly host?: string;
    readonly port?: number;
    readonly user?: string;
    readonly password?: string;
    readonly database?: string;
    readonly socketPath?: string;
    readonly ssl?: false | (MysqlTls & { readonly rejectUnauthorized?: boolean });
  };
}

/** Returns the options of a pool. Throws a TypeError for settings that Lockstep does not support. */
export function optionsOf(connection: MysqlOptions | Mysql2Pool): MysqlOptions {
  if (!("getConnection" in connection)) return connection;
  const settings = settingsOf(connection);
  if (!settings) {
    throw new TypeError("this client has no settings: hand in what createPool of mysql2 returns");
  }
  const { connectionConfig, connectionLimit } = settings;
  const { host = "localhost", port, user, password, database, socketPath, ssl } = connectionConfig;
  if (socketPath) throw new TypeError("the mysql2 pool uses a socket path; Lockstep needs a host");
  if (!user || !database) throw new TypeError("the mysql2 pool needs a user and a database");
  if (ssl && ssl.rejectUnauthorized === false) {
    throw new TypeError(
      "the mysql2 pool has ssl.rejectUnauthorized: false; Lockstep always checks",
    );
  }
  return {
    ...{ host, user, database },
    ...(port !== undefined && { port }),
    ...(password !== undefined && { password }),
    ...(connectionLimit !== undefined && { connections: connectionLimit }),
    ...(ssl && { tls: pemOf(ssl) }),
  };
}

function settingsOf(pool: Mysql2Pool): PoolSettings | undefined {
  type Holder = {
    readonly config?: PoolSettings;
    readonly pool?: { readonly config?: PoolSettings };
  };
  const { config, pool: inner } = pool as Holder;
  return config ?? inner?.config;
}
