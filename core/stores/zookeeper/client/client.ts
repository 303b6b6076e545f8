import { follow } from "../../../lock/abort.ts";
import { checkText, LONGEST_SPAN, wrongType } from "../../../lock/checks.ts";
import { type Duration, toMillis } from "../../../lock/duration.ts";
import { quote, StoreClosedError } from "../../../lock/errors.ts";
import { checkTlsOptions } from "../../pem.ts";
import { secureContext } from "../../secure-context.ts";
import type { Servers } from "./connection.ts";
import { LiveSession } from "./session.ts";
import type { ZooKeeper, ZooKeeperOptions, ZooKeeperSession } from "./zookeeper.ts";

/**
 * Makes a client of ZooKeeper 3.5 or later. The client connects when a session is opened.
 *
 * The client implements the protocol itself: the pure JavaScript package cannot create container nodes, does not return the
 * zxid of new nodes, and does not detect a frozen server; the native package needs a compiler to install.
 */
export function zookeeperClient(options: ZooKeeperOptions): ZooKeeper {
  const { servers, tls } = options;
  checkTlsOptions(tls);
  if (!Array.isArray(servers) || servers.length === 0) {
    throw new TypeError('zookeeper needs a list of servers, such as ["127.0.0.1:2181"]');
  }
  for (const server of servers) checkServer(server);
  let turn = Math.floor(Math.random() * servers.length);
  return new Client({
    address: `zookeeper at ${servers.join(", ")}`,
    login: loginOf(options),
    tls: tls && secureContext("zookeeper", tls),
    count: servers.length,
    next() {
      turn += 1;
      return servers[turn % servers.length] as string;
    },
  });
}

/** Throws unless the server is HOST or HOST:PORT, as in a URL. */
function checkServer(server: unknown): void {
  checkText("server", server, 1_000);
  if (/^(\[[^\]/]+\]|[^/?#@:[\]\s]+)(:\d+)?$/.test(server) && URL.canParse(`tcp://${server}`))
    return;
  const shown = quote(server.replace(/^.*@/, ""));
  const advice = "a path is the option root, and a login the options user and password";
  throw new RangeError(`server ${shown} must be HOST or HOST:PORT; ${advice}`);
}

/** Returns the login, if there is one. Throws for a wrong one, and shows no text of it. */
function loginOf({ user, password }: ZooKeeperOptions): Servers["login"] {
  if (user === undefined && password === undefined) return undefined;
  if (user === undefined) {
    const why = "without a user there is no login, and everybody may use the nodes";
    throw new TypeError(`the option password of zookeeper needs the option user: ${why}`);
  }
  if (typeof user !== "string") throw wrongType("user", "a string", user);
  if (password !== undefined && typeof password !== "string")
    throw new TypeError("password must be a string");
  // A digest login is USER:PASSWORD, whose user ends at the first colon.
  if (user === "" || user.includes(":"))
    throw new RangeError('user must not be empty, and must not contain ":"');
  return { user, password: password ?? "" };
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

  async openSession(ttl: Duration, signal?: AbortSignal): Promise<ZooKeeperSession> {
    const millis = toMillis("ttl", ttl, 1, LONGEST_SPAN);
    signal?.throwIfAborted();
    this.#closing.signal.throwIfAborted();
    const scope = follow(signal, this.#closing.signal);
    const opening = LiveSession.open(this.#servers, millis, scope.signal);
    const session = await opening.finally(() => scope[Symbol.dispose]());
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
