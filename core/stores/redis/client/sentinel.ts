import { race } from "../../../lock/abort.ts";
import { quote } from "../../../lock/errors.ts";
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

export interface SentinelRouteOptions {
  readonly sentinels: readonly ServerAddress[];

  /** The name by which the sentinels know the master. */
  readonly master: string;
  readonly dial: Dial;
  readonly dialSentinel: Dial;
}

/** The way to the master that the sentinels name at each new connection. */
export class SentinelRoute implements Route {
  readonly address: string;
  readonly connect: Connect;
  readonly #options: SentinelRouteOptions;

  constructor(options: SentinelRouteOptions) {
    this.address = `redis ${quote(options.master)} of the sentinels ${showServers(options.sentinels)}`;
    this.#options = options;
    this.connect = connectByAny(
      () => options.sentinels,
      (sentinel, signal, events) => this.#reach(sentinel, signal, events),
    );
  }

  redirect({ code }: CommandFailure): Redirection | undefined {
    return code === "READONLY" ? { hasMoved: true } : undefined;
  }

  async #reach(
    sentinel: ServerAddress,
    signal: AbortSignal,
    events: RedisConnectionEvents,
  ): Promise<RedisConnection> {
    const master = await this.#ask(sentinel, signal);
    return connectIf(this.#options.dial(master), checkRole, signal, events);
  }

  async #ask(sentinel: ServerAddress, signal: AbortSignal): Promise<ServerAddress> {
    const { master, dialSentinel } = this.#options;
    let connection: RedisConnection | undefined;
    try {
      connection = await dialSentinel(sentinel)(signal, { message: () => {}, ended: () => {} });
      const asking = connection.send(["SENTINEL", "GET-MASTER-ADDR-BY-NAME", master]);
      const found = (await race(asking, signal)) as readonly [string, string] | undefined;
      if (found) return { host: found[0], port: Number(found[1]) };
    } catch (error) {
      // The sentinels have a login of their own: the error says that it is not that of the servers.
      if (!(error instanceof CommandFailure)) throw error;
      const who = `the sentinel ${showServers([sentinel])}`;
      throw new CommandFailure(error.kind, `${error.message} (${who})`);
    } finally {
      connection?.close();
    }
    throw new CommandFailure("unusable", `the sentinels know no master ${quote(master)}`);
  }
}

/** A master that was demoted may not know it yet, and sentinels may lag behind. */
async function checkRole(connection: RedisConnection): Promise<void> {
  try {
    const [role] = (await connection.send(["ROLE"])) as readonly string[];
    if (role === "master") return;
  } catch (error) {
    // The user may not. A replica then refuses the first write.
    if (error instanceof CommandFailure && error.code === "NOPERM") return;
    throw error;
  }
  throw new CommandFailure("unsent", "the sentinels name a server that is no master");
}
