import type { LockStore } from "../../core/lock/lock.ts";
import { redisClient } from "../../core/stores/redis/client/open.ts";
import type { Redis, RedisOptions } from "../../core/stores/redis/client/redis.ts";
import { type RedisLocksOptions, redisLocks } from "../../core/stores/redis/locks/index.ts";
import type { Server, ServerNode } from "../../infra/servers/server.ts";
import { type StartOptions, startServer } from "../../infra/servers/start.ts";

/** A Redis server of one test, which may break it, and its clients. */
export class OwnRedis implements AsyncDisposable {
  readonly #server: Server;
  readonly #clients: Redis[] = [];
  readonly #stores: LockStore[] = [];
  #admin: Required<Redis> | undefined;

  private constructor(server: Server) {
    this.#server = server;
  }

  static async start(
    name: "redis" | "redis-replica" = "redis",
    args: StartOptions["args"] = [],
  ): Promise<OwnRedis> {
    return new OwnRedis(await startServer(name, { args }));
  }

  get url(): string {
    return this.#server.url;
  }

  get port(): number {
    return this.node.config.port;
  }

  /** The primary. */
  get node(): ServerNode {
    return this.#server.nodes[0] as ServerNode;
  }

  get replica(): ServerNode {
    return this.#server.nodes[1] as ServerNode;
  }

  /** A client of the test itself. */
  get admin(): Required<Redis> {
    this.#admin ??= this.client();
    return this.#admin;
  }

  /** Makes a client that waits longer for an answer than any pause of a busy machine. */
  client(options: Partial<RedisOptions> = {}): Required<Redis> {
    const redis = redisClient({ host: "127.0.0.1", port: this.port, timeout: 20_000, ...options });
    this.#clients.push(redis);
    return redis;
  }

  locks(options: RedisLocksOptions & { readonly redis?: Redis } = {}): LockStore {
    const { redis = this.client(), ...rest } = options;
    const store = redisLocks(redis, { ...rest, closeRedis: true });
    this.#stores.push(store);
    return store;
  }

  async restart(): Promise<void> {
    await this.node.kill("SIGKILL");
    await this.node.start();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const node of this.#server.nodes) await node.kill("SIGCONT");
    await Promise.all(this.#stores.map((store) => store.close()));
    await Promise.all(this.#clients.map((client) => client.close()));
    await this.#server.stop();
  }
}

/** Returns how often a server has executed a command, including the commands of scripts. */
export async function callsOf(redis: Redis, command: string): Promise<number> {
  const stats = String(await redis.call(["INFO", "commandstats"]));
  const [, calls = "0"] = new RegExp(`^cmdstat_${command}:calls=(\\d+)`, "m").exec(stats) ?? [];
  return Number(calls);
}
