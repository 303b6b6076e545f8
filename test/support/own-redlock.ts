import type { LockStore } from "../../core/lock/lock.ts";
import { openRedis } from "../../core/redis/ioredis.ts";
import type { Argument, Redis, Reply } from "../../core/redis/redis.ts";
import { type RedlockStoreOptions, redlockStore } from "../../core/stores/redlock/index.ts";
import type { ServerNode } from "../../infra/servers/node.ts";
import { freePort } from "../../infra/servers/processes.ts";
import { type Server, type StartOptions, startServer } from "../../infra/servers/start.ts";
import { anyPrefix, redisServer } from "./redis-under-test.ts";

/** Every write is on the disk before it is answered. */
export const DURABLE = ["--appendonly", "yes", "--appendfsync", "always"];

/** Clients of Redlock masters, under a prefix that nobody else has. */
export class Masters implements AsyncDisposable {
  readonly ports: readonly number[];
  readonly prefix = anyPrefix();
  readonly #redis: readonly Redis[];
  readonly #opened: AsyncDisposable[] = [];

  constructor(ports: readonly number[]) {
    this.ports = ports;
    this.#redis = ports.map((port) => openRedis({ host: "127.0.0.1", port }));
  }

  /** The first `count` of the five that all tests share: they must not be broken. */
  static shared(count = 5): Masters {
    return new Masters(redisServer("redlock").ports.slice(0, count));
  }

  /** A client of all, or of those that stand behind these ports. */
  locks(ports = this.ports, options: RedlockStoreOptions = {}): LockStore {
    const masters = ports.map((port) => openRedis({ host: "127.0.0.1", port }));
    const all = { prefix: this.prefix, ...options, closeMasters: true };
    const store = redlockStore(masters, all);
    this.#opened.push(store);
    return store;
  }

  /** A client that reaches only these: nobody listens where it looks for the others. */
  async locksOn(reached: readonly number[]): Promise<LockStore> {
    const ports = this.ports.map((port, i) => (reached.includes(i) ? port : freePort()));
    return this.locks(await Promise.all(ports));
  }

  /** One command to one of them. */
  call(master: number, ...[name, ...args]: [string, ...Argument[]]): Promise<Reply> {
    return (this.#redis[master] as Redis).call([name, ...args]);
  }

  /** Takes the name on one of them, as another client would. */
  async occupy(master: number, name: string, ttl: number, owner = "another"): Promise<void> {
    await this.call(master, "SET", this.key("lock", name), owner, "PX", ttl);
  }

  /** The owners of the name on these masters; undefined where it is free. */
  owners(name: string, masters = this.ports.map((_, i) => i)): Promise<readonly Reply[]> {
    return Promise.all(masters.map((master) => this.call(master, "GET", this.key("lock", name))));
  }

  key(kind: string, name: string): string {
    return `{${this.prefix}}${kind}:${name}`;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.all(this.#opened.map((each) => each[Symbol.asyncDispose]()));
    await Promise.all(this.#redis.map((redis) => redis.close()));
  }
}

/** Five masters of a test's own, which it may break. */
export class OwnMasters extends Masters {
  readonly #server: Server;

  private constructor(server: Server) {
    super(server.nodes.map(({ place }) => place.port));
    this.#server = server;
  }

  static async start(options: StartOptions = {}): Promise<OwnMasters> {
    return new OwnMasters(await startServer("redlock", options));
  }

  node(master: number): ServerNode {
    return this.#server.nodes[master] as ServerNode;
  }

  async signal(signal: NodeJS.Signals, ...masters: readonly number[]): Promise<void> {
    await Promise.all(masters.map((master) => this.node(master).kill(signal)));
  }

  override async [Symbol.asyncDispose](): Promise<void> {
    await this.signal("SIGCONT", 0, 1, 2, 3, 4);
    await super[Symbol.asyncDispose]();
    await this.#server.stop();
  }
}
