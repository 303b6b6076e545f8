import { Redis as Ioredis, ReplyError } from "ioredis";
import { race } from "../lock/abort.ts";
import type { Millis } from "../lock/time.ts";
import { redisOver } from "./client.ts";
import type { Connect, Connection } from "./connection.ts";
import { CommandFailure, type Why } from "./failure.ts";
import type { Redis, RedisOptions, Reply } from "./redis.ts";

/**
 * Redis over ioredis. It connects on first use.
 *
 * Of ioredis one connection at a time is used: what it does of itself after a connection has ended would send
 * writes again, or keep them waiting for as long as the server is away.
 */
export function openRedis(options: RedisOptions): Redis {
  return redisOver(connectTo, options);
}

function connectTo(options: RedisOptions, timeout: Millis): Connect {
  const { host, port = 6_379, user, password, database = 0, tls } = options;
  return async (signal, events) => {
    const client = new Ioredis({
      host,
      port,
      ...(user !== undefined && { username: user }),
      ...(password !== undefined && { password }),
      db: database,
      ...(tls && { tls: { minVersion: "TLSv1.2", ...tls } }),
      connectionName: "lockstep",
      disableClientInfo: true,
      connectTimeout: timeout,
      // No answer for so long while one is due: the connection is taken for dead.
      socketTimeout: timeout,
      keepAlive: 10_000,
      stringNumbers: true,
      lazyConnect: true,
      enableOfflineQueue: false,
      // It would print a warning where INFO is not allowed. A server that still loads says so to each command.
      enableReadyCheck: false,
      retryStrategy: null,
    });
    let problem: unknown;
    client
      .on("error", (error) => {
        problem ??= error;
      })
      .on("message", events.message);
    const close = () => {
      client.disconnect();
      // Not its end alone: a server that does not answer would keep this process alive.
      client.stream?.destroy();
    };
    try {
      await race(client.connect(), signal);
      // The database that was asked for may be none, and ioredis would go on with another.
      if (problem !== undefined) throw problem;
    } catch (error) {
      close();
      throw toFailure(problem ?? error, "unsent");
    }
    client.once("end", events.ended);
    return connectionOf(client, close, () => problem);
  };
}

function connectionOf(client: Ioredis, close: () => void, problem: () => unknown): Connection {
  const isOpen = () => client.status === "ready" && client.stream.writable;
  return {
    get isOpen() {
      return isOpen();
    },
    async send([name, ...args]) {
      if (!isOpen()) throw new CommandFailure("unsent", "the connection has ended");
      try {
        return toReply(await client.call(name, args));
      } catch (error) {
        throw toFailure(error instanceof ReplyError ? error : (problem() ?? error), "unanswered");
      }
    },
    close,
  };
}

/** Not the error itself: ioredis puts the command into it, of which one holds the password. */
function toFailure(error: unknown, otherwise: Why): CommandFailure {
  const { message, code = "" } = error as NodeJS.ErrnoException;
  if (error instanceof ReplyError) return new CommandFailure("answered", message);
  const isUntrusted = otherwise === "unsent" && /SSL|TLS|CERT|SIGNATURE/.test(code);
  return new CommandFailure(isUntrusted ? "untrusted" : otherwise, message || code);
}

function toReply(raw: unknown): Reply {
  if (Array.isArray(raw)) return raw.map(toReply);
  return raw === null ? undefined : String(raw);
}
