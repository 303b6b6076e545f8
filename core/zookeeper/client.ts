import { checkText } from "../lock/checks.ts";
import { StoreClosedError } from "../lock/errors.ts";
import type { Millis } from "../lock/time.ts";
import type { Servers } from "./connection.ts";
import { LiveSession } from "./session.ts";
import type { Session, ZooKeeper, ZooKeeperOptions } from "./zookeeper.ts";

/**
 * A client of ZooKeeper 3.5 or later. It connects when a session is opened.
 *
 * It talks the protocol itself: the pure JavaScript client can make no container nodes, does not learn the zxid of
 * what it creates, and never notices that its server is frozen; the native one needs a compiler to install.
 */
export function openZooKeeper(options: ZooKeeperOptions): ZooKeeper {
  const { servers, user, password = "" } = options;
  if (servers.length === 0) throw new TypeError("zookeeper needs at least one server");
  for (const server of servers) checkText("server", server, 1_000);
  let turn = Math.floor(Math.random() * servers.length);
  return new Client({
    address: `zookeeper at ${servers.join(", ")}`,
    login: user === undefined ? undefined : { user, password },
    count: servers.length,
    next() {
      turn += 1;
      return servers[turn % servers.length] as string;
    },
  });
}

class Client implements ZooKeeper {
  readonly #servers: Servers;
  readonly #closing = new AbortController();
  readonly #sessions = new Set<LiveSession>();

  constructor(servers: Servers) {
    this.#servers = servers;
  }

  get address(): string {
    return this.#servers.address;
  }

  async openSession(ttl: Millis, signal?: AbortSignal): Promise<Session> {
    signal?.throwIfAborted();
    this.#closing.signal.throwIfAborted();
    const session = await LiveSession.open(this.#servers, ttl, signal);
    this.#sessions.add(session);
    session.signal.addEventListener("abort", () => this.#sessions.delete(session));
    if (!this.#closing.signal.aborted) return session;
    await session.close();
    throw this.#closing.signal.reason;
  }

  async close(): Promise<void> {
    const reason = new StoreClosedError();
    this.#closing.abort(reason);
    await Promise.all([...this.#sessions].map((session) => session.close(reason)));
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }
}
