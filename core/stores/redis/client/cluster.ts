import { showServers } from "./addresses.ts";
import type {
  Connect,
  Dial,
  Redirection,
  RedisConnection,
  RedisConnectionEvents,
  Route,
  ServerAddress,
} from "./connection.ts";
import { CommandFailure } from "./failure.ts";
import { connectByAny, connectIf } from "./reach.ts";
import type { Reply } from "./redis.ts";

/** The most redirections of one attempt: nodes that disagree about a slot may name each other. */
const MOST_HOPS = 5;

export interface ClusterRouteOptions {
  /** Returns the nodes that the user has named. */
  readonly nodes: () => readonly ServerAddress[];
  readonly dial: Dial;

  /** A key of the slot: all keys of a client are in one slot. */
  readonly key: string;
}

/**
 * The way to the master of one slot of a cluster, by way of any node.
 *
 * A node without the slot names the node that has it. A connection is used once its node has answered a read of a key
 * of the slot.
 */
export class ClusterRoute implements Route {
  readonly address: string;
  readonly connect: Connect;
  readonly #options: ClusterRouteOptions;

  /** All nodes; the last known master of the slot comes first. */
  #nodes: readonly ServerAddress[] = [];

  constructor(options: ClusterRouteOptions) {
    this.address = `redis cluster at ${showServers(options.nodes()) || "unknown nodes"}`;
    this.#options = options;
    this.connect = connectByAny(
      () => unique([...this.#nodes, ...options.nodes()]),
      (start, signal, events) => this.#reach(start, signal, events),
    );
  }

  redirect(failure: CommandFailure): Redirection | undefined {
    const named = serverIn(failure, this.#nodes[0]);
    switch (failure.code) {
      case "MOVED":
        if (named) this.#nodes = unique([named, ...this.#nodes]);
        return { hasMoved: true };
      case "CLUSTERDOWN":
        return { hasMoved: true };
      case "ASK":
        return {
          hasMoved: false,
          ...(named && { connect: askingFirst(this.#options.dial(named)) }),
        };
      case "TRYAGAIN":
        return { hasMoved: false };
      default:
        return undefined;
    }
  }

  async #reach(
    start: ServerAddress,
    signal: AbortSignal,
    events: RedisConnectionEvents,
  ): Promise<RedisConnection> {
    const { dial, key } = this.#options;
    const check = (connection: RedisConnection) =>
      connection.send(["EXISTS", key]).catch(exceptAsk);
    let server = start;
    for (let hop = 0; hop < MOST_HOPS; hop += 1) {
      try {
        const connection = await connectIf(dial(server), check, signal, events);
        void this.#learn(connection, server);
        return connection;
      } catch (error) {
        const named = error instanceof CommandFailure && serverIn(error, server);
        if (!named) throw error;
        server = named;
      }
    }
    throw new CommandFailure("unsent", "the nodes of the cluster disagree about the slot");
  }

  /** Remembers all nodes: those that the user has named may be gone one day. */
  async #learn(connection: RedisConnection, master: ServerAddress): Promise<void> {
    this.#nodes = unique([master, ...this.#nodes]);
    try {
      const ranges = await connection.send(["CLUSTER", "SLOTS"]);
      this.#nodes = unique([master, ...nodesIn(ranges, master)]);
    } catch {
      // The user may not, or the connection has ended.
    }
  }
}

/** A node that hands the slot over, key by key, still has it. */
function exceptAsk(error: unknown): void {
  if (!(error instanceof CommandFailure) || error.code !== "ASK") throw error;
}

/** A node that takes a slot over executes commands for it only after ASKING. */
function askingFirst(connect: Connect): Connect {
  return async (signal, events) => {
    const connection = await connect(signal, events);
    return {
      get isOpen() {
        return connection.isOpen;
      },
      get heardAt() {
        return connection.heardAt;
      },
      async send(command) {
        const [, reply] = await Promise.all([
          connection.send(["ASKING"]),
          connection.send(command),
        ]);
        return reply;
      },
      close: () => connection.close(),
    };
  };
}

/** Reads "MOVED 3999 HOST:PORT" or "ASK 3999 HOST:PORT". Without a host, the host of the server that says so counts. */
function serverIn(
  { message }: CommandFailure,
  { host: sayer = "" }: Partial<ServerAddress> = {},
): ServerAddress | undefined {
  const [, host, port] = /^(?:MOVED|ASK) \d+ (.*):(\d+)$/.exec(message) ?? [];
  return port === undefined ? undefined : { host: toHost(host, sayer), port: Number(port) };
}

/** Reads CLUSTER SLOTS: ranges of slots, each [first, last, [host, port, …], …] with the master before its replicas. */
function nodesIn(ranges: Reply, { host: sayer }: ServerAddress): readonly ServerAddress[] {
  type Range = readonly [string, string, ...(readonly [string | undefined, string])[]];
  return (ranges as readonly Range[]).flatMap(([, , ...nodes]) =>
    nodes.map(([host, port]) => ({ host: toHost(host, sayer), port: Number(port) })),
  );
}

function toHost(host: string | undefined, sayer: string): string {
  return host === undefined || host === "" || host === "?" ? sayer : host;
}

function unique(servers: readonly ServerAddress[]): readonly ServerAddress[] {
  return [...new Map(servers.map((each) => [`${each.host}:${each.port}`, each])).values()];
}
