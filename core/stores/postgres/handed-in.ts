import { pemOf } from "../pem.ts";
import type { PostgresOptions, PostgresTls } from "./database.ts";

/**
 * A pool of the package pg.
 *
 * Lockstep reads the pool's settings and opens connections of its own: it must know their number, their sockets and their
 * parsers, and a SET of the application must not reach them. The owner of the pool closes it.
 */
export interface PgPool {
  connect(...args: never[]): unknown;
  query(...args: never[]): unknown;
}

/** The settings from which a pool makes its clients. */
interface PoolSettings {
  readonly options: { readonly max?: number };
  readonly Client: new (options: object) => ClientSettings;
}

/** The settings of a client, also those of a connection string and of the environment. */
interface ClientSettings {
  readonly host: string;
  readonly port: number;
  readonly user?: string;
  readonly password?: unknown;
  readonly database?: string;
  readonly connectionParameters?: { readonly options?: string };
  readonly ssl?: boolean | (PostgresTls & { readonly rejectUnauthorized?: boolean });
}

/** Returns the options of a pool. Throws a TypeError for settings that Lockstep does not support. */
export function optionsOf(connection: PostgresOptions | PgPool): PostgresOptions {
  if (!("connect" in connection)) return connection;
  const { Client, options } = connection as PgPool & Partial<PoolSettings>;
  if (!Client || !options) {
    throw new TypeError("this client has no settings: hand in a Pool of the package pg");
  }
  const { host, port, user, password, database, ssl, connectionParameters } = new Client(options);
  if (host.startsWith("/"))
    throw new TypeError("the pg pool uses a socket path; Lockstep needs a host");
  if (connectionParameters?.options) {
    throw new TypeError(
      "the pg pool has `options` for its sessions, which connections of Lockstep would not have; set them for the role: ALTER ROLE … SET search_path = …",
    );
  }
  if (!user || !database) throw new TypeError("the pg pool needs a user and a database");
  if (typeof password === "function") {
    throw new TypeError("the pg pool has a function for its password; Lockstep needs a text");
  }
  const tls = ssl === true ? {} : ssl || undefined;
  if (tls && "rejectUnauthorized" in tls && tls.rejectUnauthorized === false) {
    throw new TypeError("the pg pool has ssl.rejectUnauthorized: false; Lockstep always checks");
  }
  return {
    ...{ host, port, user, database },
    ...(typeof password === "string" && { password }),
    ...(options.max !== undefined && { connections: options.max }),
    ...(tls && { tls: pemOf(tls) }),
  };
}
