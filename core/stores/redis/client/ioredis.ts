import type { Redis as Ioredis } from "ioredis";
import { race } from "../../../lock/abort.ts";
import { instant, type Millis } from "../../../lock/time.ts";
import { redisOver } from "./client.ts";
import type { Connect, RedisConnection } from "./connection.ts";
import { CommandFailure, type FailureKind } from "./failure.ts";
import { loadIoredis } from "./load-ioredis.ts";
import type { Redis, RedisOptions, Reply } from "./redis.ts";

/**
 * Redis over ioredis. It connects on first use.
 *
 * Each ioredis client is used for one connection: its own reconnection would send writes again, or keep them waiting for
 * as long as the server is away.
 */
export function redisClient(connection: RedisOptions | IoredisClient): Required<Redis> {
  if (!("duplicate" in connection)) return redisOver(connectTo, connection);
  const { host = "localhost", port = 6_379, db: database = 0, tls } = connection.options ?? {};
  if (connection.isCluster) {
    throw new TypeError(
      "the client is a Cluster of ioredis; Lockstep needs the node with its prefix",
    );
  }
  if (tls?.rejectUnauthorized === false) {
    throw new TypeError("the client has tls.rejectUnauthorized: false; Lockstep always checks");
  }
  const duplicate = async (settings: IoredisSettings) =>
    connection.duplicate({ ...settings, keyPrefix: "" }) as Ioredis;
  return redisOver((_, timeout) => connectBy(duplicate, timeout), { host, port, database });
}

/** Makes a client. Rejects with a TypeError when it needs the package ioredis, which is not installed. */
export async function openRedisClient(
  connection: RedisOptions | IoredisClient,
): Promise<Required<Redis>> {
  if (!("duplicate" in connection)) await loadIoredis();
  return redisClient(connection);
}

/**
 * A client of the package ioredis.
 *
 * Lockstep duplicates the client for connections of its own, because the client repeats writes. The client stays its
 * owner's, who closes it.
 */
export interface IoredisClient {
  readonly isCluster?: boolean;
  readonly options?: {
    readonly host?: string | undefined;
    readonly port?: number | undefined;
    readonly db?: number | undefined;
    readonly tls?: { readonly rejectUnauthorized?: boolean | undefined } | undefined;
  };
  duplicate(settings?: object): unknown;
}

type IoredisSettings = ReturnType<typeof settingsOf>;

function connectTo(options: RedisOptions, timeout: Millis): Connect {
  const { host, port = 6_379, user, password, database = 0, tls } = options;
  const create = async (settings: IoredisSettings) => {
    const Client = await clientClass();
    return new Client({
      host,
      port,
      ...(user !== undefined && { username: user }),
      ...(password !== undefined && { password }),
      db: database,
      ...(tls && { tls: { minVersion: "TLSv1.2", ...tls } }),
      ...settings,
    });
  };
  return connectBy(create, timeout);
}

/** The settings of every connection, which the guarantees depend on. */
function settingsOf(timeout: Millis) {
  return {
    connectionName: "lockstep",
    disableClientInfo: true,
    connectTimeout: timeout,
    // Closes the connection when a due answer has not come for so long.
    socketTimeout: timeout,
    keepAlive: 10_000,
    // The timer would keep this process alive after a failed connection.
    disconnectTimeout: 0,
    stringNumbers: true,
    lazyConnect: true,
    enableOfflineQueue: false,
    // The check prints a warning where INFO is not allowed. A server that still loads refuses each command.
    enableReadyCheck: false,
    retryStrategy: null,
  };
}

function connectBy(
  create: (settings: IoredisSettings) => Promise<Ioredis>,
  timeout: Millis,
): Connect {
  return async (signal, events) => {
    const client = await create(settingsOf(timeout));
    let problem: unknown;
    client
      .on("error", (error) => {
        problem ??= error;
      })
      .on("message", events.message);
    const close = () => {
      client.disconnect();
      // disconnect() waits for the end of the stream: a silent server would keep this process alive.
      client.stream?.destroy();
    };
    try {
      await race(client.connect(), signal);
      // The database may not exist, and ioredis would go on with another one.
      if (problem !== undefined) throw problem;
    } catch (error) {
      close();
      throw toFailure(problem ?? error, "unsent");
    }
    client.once("end", events.ended);
    return connectionOf(client, close, () => problem);
  };
}

function connectionOf(client: Ioredis, close: () => void, problem: () => unknown): RedisConnection {
  const isOpen = () => client.status === "ready" && client.stream.writable;
  let heardAt = instant();
  client.stream.on("data", () => {
    heardAt = instant();
  });
  return {
    get heardAt() {
      return heardAt;
    },
    get isOpen() {
      return isOpen();
    },
    async send([name, ...args]) {
      if (!isOpen()) throw new CommandFailure("unsent", "the connection has ended");
      try {
        return toReply(await client.call(name, args));
      } catch (error) {
        throw toFailure(isReply(error) ? error : (problem() ?? error), "unanswered");
      }
    },
    close,
  };
}

async function clientClass() {
  try {
    return await loadIoredis();
  } catch (error) {
    throw new CommandFailure("unusable", (error as Error).message);
  }
}

function isReply(error: unknown): boolean {
  return (error as Error).name === "ReplyError";
}

/** Returns a failure without the error of ioredis, which contains the command: AUTH has the password. */
function toFailure(error: unknown, otherwise: FailureKind): CommandFailure {
  const { message, code = "" } = error as NodeJS.ErrnoException;
  if (isReply(error)) return new CommandFailure("answered", message);
  const isUntrusted = otherwise === "unsent" && /SSL|TLS|CERT|SIGNATURE/.test(code);
  return new CommandFailure(isUntrusted ? "unusable" : otherwise, message || code);
}

function toReply(raw: unknown): Reply {
  if (Array.isArray(raw)) return raw.map(toReply);
  return raw === null ? undefined : String(raw);
}
