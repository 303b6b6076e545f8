import type { LockStore } from "../../core/lock/lock.ts";
import { redisClient } from "../../core/stores/redis/client/open.ts";
import type { Argument, Redis, Reply } from "../../core/stores/redis/client/redis.ts";
import { type RedlockOptions, redlockLocks } from "../../core/stores/redlock/locks.ts";
import { freePort } from "../../infra/servers/processes.ts";
import type { Server, ServerNode } from "../../infra/servers/server.ts";
import { type StartOptions, startServer } from "../../infra/servers/start.ts";
import { anyPrefix, redisServer } from "./redis-under-test.ts";

/** The server answers a write after it is on the disk. */
export const DURABLE = ["--appendonly", "yes", "--appendfsync", "always"];

/** Clients of Redlock masters, under a prefix of their own. */
export class Masters implements AsyncDisposable {
  readonly ports: readonly number[];
  readonly prefix = anyPrefix();
  readonly #redis: readonly Redis[];
  readonly #opened: AsyncDisposable[] = [];

  constructor(ports: readonly number[]) {
    this.ports = ports;
    this.#redis = ports.map((port) => redisClient({ host: "127.0.0.1", port }));
  }

  /** Returns the first `count` of the five shared masters, which a test must not break. */
  static shared(count = 5): Masters {
    return new Masters(redisServer("redlock").ports.slice(0, count));
  }

  /** Returns a client of all masters, or of those with these ports. */
  locks(ports = this.ports, options: RedlockOptions = {}): LockStore {
    const masters = ports.map((port) => redisClient({ host: "127.0.0.1", port }));
    const all = { prefix: this.prefix, ...options, closeMasters: true };
    const store = redlockLocks(masters, all);
    this.#opened.push(store);
    return store;
  }

  /** Returns a client that reaches only these masters: the ports of the others are closed. */
  async locksOn(reached: readonly number[]): Promise<LockStore> {
    const ports = this.ports.map((port, i) => (reached.includes(i) ? port : freePort()));
    return this.locks(await Promise.all(ports));
  }

  /** Sends one command to one master. */
  call(master: number, ...[name, ...args]: [string, ...Argument[]]): Promise<Reply> {
    return (this.#redis[master] as Redis).call([name, ...args]);
  }

  /** Locks the name on one master, like another client. */
  async occupy(master: number, name: string, ttl: number, owner = "another"): Promise<void> {
    await this.call(master, "SET", this.key("lock", name), owner, "PX", ttl);
  }

  /** Returns the owners of the name on these masters; undefined where it is free. */
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

/** Five masters of one test, which may break them. */
export class OwnMasters extends Masters {
  readonly #server: Server;

  private constructor(server: Server) {
    super(server.nodes.map(({ config }) => config.port));
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

  async restart(): Promise<void> {
    await this.signal("SIGKILL", ...this.ports.keys());
    await Promise.all([...this.ports.keys()].map((master) => this.node(master).start()));
  }

  override async [Symbol.asyncDispose](): Promise<void> {
    await this.signal("SIGCONT", 0, 1, 2, 3, 4);
    await super[Symbol.asyncDispose]();
    await this.#server.stop();
  }
}
