import { race } from "../../../lock/abort.ts";
import type { Millis } from "../../../lock/time.ts";
import { checkTls, routeToServer } from "./addresses.ts";
import { ClusterRoute } from "./cluster.ts";
import type { Dial, RedisConnection, Route, RouteOptions, ServerAddress } from "./connection.ts";
import { CommandFailure, connectionFailure } from "./failure.ts";
import { toReply } from "./redis.ts";
import { Silence } from "./silence.ts";

/**
 * A client of the package redis, from createClient or createCluster. A cluster's client must be connected.
 *
 * Lockstep duplicates the client for connections of its own, because the client repeats writes. The owner of the
 * client closes it.
 */
export interface NodeRedisClient {
  readonly isOpen: boolean;
  sendCommand(...command: readonly never[]): unknown;
}

/** The part of a client that Lockstep uses. Versions 5 and 6 have the same one. */
interface Client extends NodeRedisClient {
  readonly options?: ClientOptions;
  readonly isReady: boolean;
  duplicate(overrides: object): Client;
  connect(): Promise<unknown>;
  destroy(): void;
  on(event: "connect" | "error", listener: (error: unknown) => void): unknown;
  sendCommand(command: readonly string[]): Promise<unknown>;
  subscribe(channels: readonly string[], listener: Listener): Promise<void>;
  unsubscribe(channels: readonly string[]): Promise<void>;
}

type Listener = (text: string, channel: string) => void;

interface ClientOptions {
  readonly socket?: {
    readonly host?: string;
    readonly port?: number;

    /** Of a Unix socket. */
    readonly path?: string;
    readonly rejectUnauthorized?: boolean;
  };
}

interface Cluster extends NodeRedisClient {
  readonly masters: readonly Master[];
  nodeClient(master: Master): Client | Promise<Client>;
  readonly _options: {
    readonly defaults?: ClientOptions;
    readonly nodeAddressMap?: AddressMap;
  };
}

interface Master extends ServerAddress {
  /** None before the first command for this master, with `minimizeConnections`. */
  readonly client?: Client;
}

type AddressMap =
  | Readonly<Record<string, ServerAddress>>
  | ((address: string) => ServerAddress | undefined);

/** The way to the servers of a client of the package redis. */
export function routeLikeNodeRedis(client: NodeRedisClient, options: RouteOptions): Route {
  if (isCluster(client)) return routeLikeCluster(client, options);
  const like = client as Client;
  if (!like.options) {
    throw new TypeError(
      "the client is one of createSentinel or createClientPool: name the sentinels and the master, or pass a client of createClient",
    );
  }
  const { socket } = like.options;
  checkTls(socket);
  const { host = "localhost", port = 6_379, path } = socket ?? {};
  return routeToServer(
    { host, port },
    dialLike(() => like, options.timeout),
    path,
  );
}

function isCluster(client: NodeRedisClient): client is Cluster {
  return "masters" in client;
}

function routeLikeCluster(client: Cluster, { timeout, key }: RouteOptions): Route {
  const { defaults, nodeAddressMap } = client._options;
  checkTls(defaults?.socket);
  const someNode = () => {
    const { masters } = client;
    const master = masters.find((each) => each.client) ?? masters[0];
    if (master) return master.client ?? client.nodeClient(master);
    throw new CommandFailure("unsent", "the client of the cluster is not connected");
  };
  const dial = dialLike(someNode, timeout);
  return new ClusterRoute({
    nodes: () => client.masters.map(({ host, port }) => ({ host, port })),
    dial: (server) => dial(toReachable(server, nodeAddressMap)),
    key,
  });
}

function toReachable(server: ServerAddress, map: AddressMap | undefined): ServerAddress {
  const address = `${server.host}:${server.port}`;
  return (typeof map === "function" ? map(address) : map?.[address]) ?? server;
}

/** The type of integers in the protocol, whose values have 64 bits. */
const INTEGER = ":".charCodeAt(0);

/** The settings of every connection, which the guarantees depend on. */
function settingsOf({ options = {} }: Client, server: ServerAddress, timeout: Millis) {
  return {
    RESP: 2,
    name: "lockstep",
    disableClientInfo: true,
    // The client would send writes again, or keep them waiting.
    disableOfflineQueue: true,
    socket: {
      ...options.socket,
      ...server,
      connectTimeout: timeout,
      // The environment could switch the check of certificates off.
      rejectUnauthorized: true,
      // The timeout of this package also closes a connection that nobody uses.
      socketTimeout: undefined,
      reconnectStrategy: false,
    },
    // A URL would replace the socket's host.
    url: undefined,
    commandOptions: { typeMapping: { [INTEGER]: String } },
    clientSideCache: undefined,
    maintNotifications: "disabled",
    pingInterval: undefined,
    readonly: false,
  };
}

/** Connects with the settings of a client. Each client is used for one connection. */
function dialLike(like: () => Client | Promise<Client>, timeout: Millis): Dial {
  return (server) => async (signal, events) => {
    const original = await race(Promise.resolve(like()), signal);
    const client = original.duplicate(settingsOf(original, server, timeout));
    let problem: unknown;
    let [isConnected, isClosed] = [false, false];
    const close = () => {
      isClosed = true;
      // Before it is connected, destroy() would leave the socket behind.
      if (isConnected && client.isOpen) client.destroy();
    };
    client.on("connect", () => {
      isConnected = true;
      if (isClosed) close();
    });
    client.on("error", (error) => {
      problem ??= error;
      events.ended();
    });
    try {
      await race(client.connect(), signal);
    } catch (error) {
      close();
      throw toFailure(problem ?? error, "unsent");
    }
    return connectionOf(client, { close, timeout, message: events.message });
  };
}

interface ConnectionOptions {
  readonly close: () => void;
  readonly timeout: Millis;
  readonly message: (channel: string, text: string) => void;
}

function connectionOf(client: Client, options: ConnectionOptions): RedisConnection {
  const { close, timeout, message } = options;
  const silence = new Silence(timeout, close);
  const request = (command: readonly string[]): Promise<unknown> => {
    const [name, ...channels] = command;
    switch (name) {
      case "subscribe":
        return client.subscribe(channels, (text, channel) => message(channel, text));
      case "unsubscribe":
        return client.unsubscribe(channels);
      default:
        return client.sendCommand(command);
    }
  };
  return {
    get heardAt() {
      return silence.heardAt;
    },
    get isOpen() {
      return client.isReady;
    },
    async send(command) {
      if (!client.isReady) throw new CommandFailure("unsent", "the connection has ended");
      try {
        const reply = await silence.until(request(command.map(String)));
        silence.heard();
        return toReply(reply ?? null);
      } catch (error) {
        const failure = toFailure(error, "unanswered");
        if (failure.kind === "answered") silence.heard();
        throw failure;
      }
    },
    close,
  };
}

/** The errors of a server start with a word in capitals, those of the package with "The" or "Socket". */
function toFailure(error: unknown, otherwise: "unsent" | "unanswered"): CommandFailure {
  const { message, code } = error as NodeJS.ErrnoException;
  if (code === undefined && /^[A-Z]{2,}\b/.test(message)) {
    return new CommandFailure("answered", message);
  }
  return connectionFailure(error, otherwise);
}
