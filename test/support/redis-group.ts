import { redisOver } from "../../core/stores/redis/client/client.ts";
import { ClusterRoute } from "../../core/stores/redis/client/cluster.ts";
import type { Dial, Route } from "../../core/stores/redis/client/connection.ts";
import { dialIoredis } from "../../core/stores/redis/client/ioredis.ts";
import { keyOf, ownKey } from "../../core/stores/redis/client/names.ts";
import { redisClient } from "../../core/stores/redis/client/open.ts";
import type { Command, Redis, RedisLogin, Reply } from "../../core/stores/redis/client/redis.ts";
import { SentinelRoute } from "../../core/stores/redis/client/sentinel.ts";
import { redisInventory } from "../../core/stores/redis/inventory/index.ts";
import { redisLocks } from "../../core/stores/redis/locks/index.ts";
import {
  type RedisStore,
  type RedisStoreOptions,
  redisStore,
} from "../../core/stores/redis/store.ts";
import type { Server, ServerNode } from "../../infra/servers/server.ts";
import { type StartOptions, startServer } from "../../infra/servers/start.ts";
import type { InventoryUnderTest } from "../conformance/inventory-suite.ts";
import { redisAnswer } from "./error-answers.ts";
import { anyPrefix } from "./redis-under-test.ts";
import { TcpProxy } from "./tcp-proxy.ts";
import type { StoreUnderTest } from "./under-test.ts";
import { until } from "./until.ts";

/** How long a client of these tests waits for an answer: longer than any pause of a busy machine. */
const PATIENCE = 10_000;

/** How the servers of a group are started, and how a test reaches them. */
export interface GroupOptions extends StartOptions {
  /** Default 127.0.0.1. */
  readonly host?: string;

  /** The login at the servers that have data. */
  readonly login?: RedisLogin;
  readonly sentinelLogin?: RedisLogin;
}

/** Redis servers that replace a lost master by a replica: a cluster, or servers with sentinels. */
export abstract class RedisGroup implements AsyncDisposable {
  readonly server: Server;
  protected readonly host: string;
  protected readonly login: RedisLogin;
  readonly #admins = new Map<number, Redis>();
  readonly #opened: AsyncDisposable[] = [];

  protected constructor(server: Server, { host = "127.0.0.1", login = {} }: GroupOptions) {
    this.server = server;
    this.host = host;
    this.login = login;
  }

  /** The servers that have data. */
  abstract readonly nodes: readonly ServerNode[];
  protected abstract route(prefix: string, dial: Dial): Route;

  /** Returns a client of the group, whose connections to some ports go to others. */
  client(
    prefix: string,
    ports: ReadonlyMap<number, number> = new Map(),
    timeout = PATIENCE,
  ): Required<Redis> {
    const dial = dialIoredis(this.login, timeout);
    const route = this.route(prefix, ({ host, port }) =>
      dial({ host, port: ports.get(port) ?? port }),
    );
    const redis = redisOver(route, timeout);
    this.#opened.push(redis);
    return redis;
  }

  store(options: RedisStoreOptions & { readonly prefix: string }): RedisStore {
    return redisStore(this.client(options.prefix), options);
  }

  /** Sends a command to one node. */
  tell(node: ServerNode, ...command: Command): Promise<Reply> {
    const { port } = node.config;
    const server = { host: this.host, port, timeout: PATIENCE };
    const admin = this.#admins.get(port) ?? redisClient({ ...server, ...this.loginAt(node) });
    this.#admins.set(port, admin);
    return admin.call(command);
  }

  protected loginAt(_: ServerNode): RedisLogin {
    return this.login;
  }

  /** Returns the node that serves the keys of a prefix. */
  async masterOf(prefix: string): Promise<ServerNode> {
    const redis = this.client(prefix);
    const [, port] = /laddr=[^ ]*:(\d+)/.exec(String(await redis.call(["CLIENT", "INFO"]))) ?? [];
    await redis.close();
    const found = this.nodes.find(({ config }) => config.port === Number(port));
    if (!found) throw new Error(`no node listens on ${port}`);
    return found;
  }

  /** Returns the replica of a master. */
  async replicaOf(master: ServerNode): Promise<ServerNode> {
    const ports = String(await this.tell(master, "INFO", "replication")).matchAll(
      /port=(\d+),state=online/g,
    );
    const [port] = [...ports].map((found) => Number(found[1]));
    const found = this.nodes.find(({ config }) => config.port === port);
    if (!found) throw new Error("the master has no replica in sync");
    return found;
  }

  /** Makes the replica of a prefix's master a master. */
  async failOver(prefix: string): Promise<void> {
    // The nodes may have replaced the master themselves meanwhile: it is asked for again.
    const replicaOfNow = async () => this.replicaOf(await this.masterOf(prefix));
    const replica = await until(() => replicaOfNow().catch(() => undefined));
    const hasReplaced = async () => (await this.masterOf(prefix)) === replica;
    // A replica that is told to take over gives up after 5 s without the votes of the masters.
    await until(async () => {
      await this.startFailover(replica).catch(() => {});
      return await until(hasReplaced, 6_000).catch(() => false);
    });
  }

  protected abstract startFailover(replica: ServerNode): Promise<unknown>;

  async underTest(name: string): Promise<StoreUnderTest> {
    const prefix = anyPrefix();
    const admin = this.client(prefix);
    const master = await this.masterOf(prefix);
    const proxies: TcpProxy[] = [];
    return {
      name,
      url: `${this.server.url}?prefix=${prefix}`,
      open: (options) => redisLocks(this.client(prefix), { ...options, prefix, closeRedis: true }),
      openOverWire: async () => {
        const { port } = master.config;
        const proxy = await TcpProxy.toStore(port, redisAnswer);
        proxies.push(proxy);
        const redis = this.client(prefix, new Map([[port, proxy.port]]), 2_000);
        // Connects first, so that a lost answer is not that of a handshake.
        await redis.call(["PING"]);
        return { store: redisLocks(redis, { prefix, closeRedis: true }), wire: proxy };
      },
      async erase(lock) {
        await admin.call(["DEL", keyOf(prefix, "lock", lock)]);
      },
      async close() {
        for (const proxy of proxies) await proxy.close();
      },
    };
  }

  async inventoryUnderTest(): Promise<InventoryUnderTest> {
    const prefix = anyPrefix();
    const { port } = (await this.masterOf(prefix)).config;
    const proxies: TcpProxy[] = [];
    const openAs = (redis: Redis) => {
      const locks = redisLocks(redis, { prefix, closeRedis: true });
      return { inventory: redisInventory(redis, { prefix }), locks };
    };
    return {
      fencedByLock: false,
      open: () => openAs(this.client(prefix)),
      openOverWire: async () => {
        const wire = await TcpProxy.toStore(port, redisAnswer);
        proxies.push(wire);
        return { ...openAs(this.client(prefix, new Map([[port, wire.port]]), 2_000)), wire };
      },
      async close() {
        for (const proxy of proxies) await proxy.close();
      },
    };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const node of this.server.nodes) await node.kill("SIGCONT");
    await Promise.all(
      [...this.#opened, ...this.#admins.values()].map((each) => each[Symbol.asyncDispose]()),
    );
    await this.server.stop();
  }
}

/** Three masters with a replica each. */
export class RedisCluster extends RedisGroup {
  static async start(options: GroupOptions = {}): Promise<RedisCluster> {
    return new RedisCluster(await startServer("redis-cluster", options), options);
  }

  get nodes(): readonly ServerNode[] {
    return this.server.nodes;
  }

  /** Returns prefixes whose keys are at different masters. */
  async prefixesOfAllMasters(): Promise<readonly string[]> {
    const found = new Map<ServerNode, string>();
    while (found.size < 3) {
      const prefix = anyPrefix();
      found.set(await this.masterOf(prefix), prefix);
    }
    return [...found.values()];
  }

  protected override startFailover(replica: ServerNode): Promise<unknown> {
    return this.tell(replica, "CLUSTER", "FAILOVER");
  }

  protected override route(prefix: string, dial: Dial): Route {
    const nodes = this.nodes.map(({ config: { port } }) => ({ host: this.host, port }));
    return new ClusterRoute({ nodes: () => nodes, dial, key: ownKey(prefix, "generation") });
  }
}

/** A master, its replica, and three sentinels. */
export class RedisSentinels extends RedisGroup {
  readonly #sentinelLogin: RedisLogin;

  private constructor(server: Server, options: GroupOptions) {
    super(server, options);
    this.#sentinelLogin = options.sentinelLogin ?? {};
  }

  static async start(options: GroupOptions = {}): Promise<RedisSentinels> {
    return new RedisSentinels(await startServer("redis-sentinel", options), options);
  }

  get nodes(): readonly ServerNode[] {
    return this.server.nodes.slice(0, 2);
  }

  get sentinels(): readonly ServerNode[] {
    return this.server.nodes.slice(2);
  }

  protected override async startFailover(): Promise<unknown> {
    const [sentinel] = this.sentinels;
    return sentinel && this.tell(sentinel, "SENTINEL", "FAILOVER", "lockstep");
  }

  protected override loginAt(node: ServerNode): RedisLogin {
    return this.sentinels.includes(node) ? this.#sentinelLogin : this.login;
  }

  protected override route(_prefix: string, dial: Dial): Route {
    const sentinels = this.sentinels.map(({ config: { port } }) => ({ host: this.host, port }));
    const dialSentinel = dialIoredis(this.#sentinelLogin, PATIENCE);
    return new SentinelRoute({ sentinels, master: "lockstep", dial, dialSentinel });
  }
}
