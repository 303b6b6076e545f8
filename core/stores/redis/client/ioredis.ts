import type { Cluster, Redis as Ioredis, RedisOptions as IoredisOptions } from "ioredis";
import { race } from "../../../lock/abort.ts";
import type { Millis } from "../../../lock/time.ts";
import { checkedTls, checkTls, routeToServer, toAddress } from "./addresses.ts";
import { ClusterRoute } from "./cluster.ts";
import type { Dial, RedisConnection, Route, RouteOptions, ServerAddress } from "./connection.ts";
import { CommandFailure, connectionFailure } from "./failure.ts";
import { loadIoredis } from "./load-ioredis.ts";
import { type RedisLogin, toReply } from "./redis.ts";
import { SentinelRoute } from "./sentinel.ts";
import { Silence } from "./silence.ts";

/**
 * A client of the package ioredis: a Redis, also by way of sentinels, or a Cluster.
 *
 * Lockstep duplicates the client for connections of its own, because the client repeats writes. The owner of the
 * client closes it.
 */
export interface IoredisClient {
  readonly isCluster: boolean;
  readonly options?: unknown;
  sendCommand(...command: readonly never[]): unknown;
}

/**
 * Connects with ioredis. Each of its clients is used for one connection: its own reconnection would send writes again,
 * or keep them waiting for as long as the server is away.
 */
export function dialIoredis(login: RedisLogin, timeout: Millis): Dial {
  const { user, password, database = 0, tls } = login;
  return dialBy(timeout, async (settings) => {
    const Client = await clientClass();
    return new Client({
      ...(user !== undefined && { username: user }),
      ...(password !== undefined && { password }),
      db: database,
      ...(tls && { tls: checkedTls(tls) }),
      ...settings,
    });
  });
}

/** The way to the servers of a client of ioredis. */
export function routeLikeIoredis(client: IoredisClient, options: RouteOptions): Route {
  return client.isCluster
    ? routeLikeCluster(client as unknown as Cluster, options)
    : routeLikeRedis(client as unknown as Ioredis, options.timeout);
}

function routeLikeRedis(client: Ioredis, timeout: Millis): Route {
  const { host = "localhost", port = 6_379, path, sentinels, tls, ...options } = client.options;
  checkTls(tls);
  if (!sentinels)
    return routeToServer(
      { host, port },
      dialLike(() => client, timeout),
      path ?? undefined,
    );
  checkTls(options.sentinelTLS);
  const dial = dialLike(() => client, timeout, {
    sentinels: null,
    ...(!options.enableTLSForSentinelMode && { tls: undefined }),
  });
  return new SentinelRoute({
    sentinels: sentinels.map((each) => toAddress({ host: "localhost", ...each }, 26_379)),
    master: options.name ?? "",
    dial: (server) => dial(toReachable(server, options.natMap)),
    dialSentinel: dialLike(() => client, timeout, {
      sentinels: null,
      username: options.sentinelUsername,
      password: options.sentinelPassword,
      db: 0,
      tls: options.sentinelTLS,
    }),
  });
}

function routeLikeCluster(client: Cluster, { timeout, key }: RouteOptions): Route {
  const { redisOptions, natMap } = client.options;
  checkTls(redisOptions?.tls);
  const nodes = () => {
    // A Cluster knows its nodes once it connects.
    if (client.status === "wait") client.connect().catch(() => {});
    return client.nodes().map(({ options }) => toServer(options));
  };
  const someNode = () => {
    const [node] = client.nodes();
    if (node) return node;
    throw new CommandFailure("unsent", "the Cluster of ioredis knows no node yet");
  };
  const dial = dialLike(someNode, timeout, { readOnly: false });
  return new ClusterRoute({ nodes, dial: (server) => dial(toReachable(server, natMap)), key });
}

function toServer({ host = "localhost", port = 6_379 }: IoredisOptions): ServerAddress {
  return { host, port };
}

type NatMap = Cluster["options"]["natMap"];

function toReachable(server: ServerAddress, natMap: NatMap): ServerAddress {
  const address = `${server.host}:${server.port}`;
  return (typeof natMap === "function" ? natMap(address) : natMap?.[address]) ?? server;
}

/** Connects with the settings of a client of ioredis. With TLS, it checks the certificate whatever the environment says. */
function dialLike(client: () => Ioredis, timeout: Millis, more: object = {}): Dial {
  return dialBy(timeout, async (settings) => {
    const like = client();
    const { tls }: IoredisOptions = { ...like.options, ...more };
    const checked = tls && { tls: { ...tls, rejectUnauthorized: true } };
    return like.duplicate({ ...more, ...checked, ...settings, keyPrefix: "" });
  });
}

type IoredisSettings = ReturnType<typeof settingsOf>;

/** The settings of every connection, which the guarantees depend on. */
function settingsOf(timeout: Millis) {
  return {
    connectionName: "lockstep",
    disableClientInfo: true,
    connectTimeout: timeout,
    // The client's own timeout would end commands that block. Lockstep watches the silence of the connection.
    socketTimeout: undefined,
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

function dialBy(
  timeout: Millis,
  create: (settings: IoredisSettings & ServerAddress) => Promise<Ioredis>,
): Dial {
  return (server) => async (signal, events) => {
    const client = await create({ ...settingsOf(timeout), ...server });
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
      throw explained(toFailure(problem ?? error, "unsent"), client);
    }
    client.once("end", events.ended);
    return connectionOf(client, { close, timeout, problem: () => problem });
  };
}

/** A server with TLS ends a connection without TLS, and says nothing. */
function explained(failure: CommandFailure, { options, stream }: Ioredis): CommandFailure {
  const isEnd = /ECONNRESET|EPIPE|Connection is closed/.test(failure.message);
  if (!isEnd || options.tls || stream?.bytesRead !== 0) return failure;
  const why = "a server with TLS ends a connection without TLS like this";
  return new CommandFailure(failure.kind, `${failure.message}; ${why}`);
}

interface ConnectionOptions {
  readonly close: () => void;
  readonly timeout: Millis;

  /** Returns the first error of the connection. */
  readonly problem: () => unknown;
}

function connectionOf(
  client: Ioredis,
  { close, timeout, problem }: ConnectionOptions,
): RedisConnection {
  const isOpen = () => client.status === "ready" && client.stream.writable;
  const silence = new Silence(timeout, () =>
    client.stream.destroy(new Error(`no answer for ${timeout} ms`)),
  );
  client.stream.on("data", () => silence.heard());
  return {
    get heardAt() {
      return silence.heardAt;
    },
    get isOpen() {
      return isOpen();
    },
    async send([name, ...args]) {
      if (!isOpen()) throw new CommandFailure("unsent", "the connection has ended");
      try {
        return toReply(await silence.until(client.call(name, args)));
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
function toFailure(error: unknown, otherwise: "unsent" | "unanswered"): CommandFailure {
  return isReply(error)
    ? new CommandFailure("answered", (error as Error).message)
    : connectionFailure(error, otherwise);
}
