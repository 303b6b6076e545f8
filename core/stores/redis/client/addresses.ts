import { checkText, checkWhole, wrongType } from "../../../lock/checks.ts";
import { checkOptionNames, type OptionNames } from "../../../lock/options.ts";
import { hostLiteral } from "../../host-literal.ts";
import { pemOf } from "../../pem.ts";
import type { Dial, Route, ServerAddress } from "./connection.ts";
import type { RedisServer, RedisTls } from "./redis.ts";

/** Returns the server with its port. Throws for a bad host or port. */
export function toAddress({ host, port }: RedisServer, defaultPort = 6_379): ServerAddress {
  checkText("host", host, 1_000);
  const address = { host, port: port ?? defaultPort };
  checkWhole("port", address.port, 1, 65_535);
  return address;
}

const SERVER_OPTIONS = { host: true, port: true } satisfies OptionNames<RedisServer>;

/** Returns the servers of an option. Throws unless it is a list of them. */
export function toAddresses(
  option: string,
  servers: readonly RedisServer[],
  defaultPort: number,
): readonly ServerAddress[] {
  if (!Array.isArray(servers)) {
    throw wrongType(`redis' ${option}`, 'a list such as [{ host: "redis-1" }]', servers);
  }
  checkWhole(`number of redis' ${option}`, servers.length, 1, 1_000);
  for (const server of servers) checkOptionNames(`a server of ${option}`, server, SERVER_OPTIONS);
  return servers.map((server) => toAddress(server, defaultPort));
}

/** Returns the text for messages. */
export function showServers(servers: readonly ServerAddress[]): string {
  return servers.map(({ host, port }) => `${hostLiteral(host)}:${port}`).join(",");
}

/** The way to a server that is always the same. `path` is its Unix socket, if the client connects by that. */
export function routeToServer(server: ServerAddress, dial: Dial, path?: string): Route {
  return { address: `redis at ${path ?? showServers([server])}`, connect: dial(server) };
}

/** Throws for a client of the user that accepts any certificate, or any host. */
export function checkTls(
  tls: Partial<Record<"rejectUnauthorized" | "checkServerIdentity", unknown>> | undefined,
): void {
  const accepts =
    tls?.rejectUnauthorized === false
      ? "rejectUnauthorized: false"
      : tls?.checkServerIdentity && "a checkServerIdentity of its own";
  if (accepts) throw new TypeError(`the client has ${accepts}; Lockstep always checks`);
}

/** The options of a TLS connection: the certificate and the host are checked, whatever else is given or in the environment. */
export function checkedTls(tls: RedisTls) {
  return { ...pemOf(tls), minVersion: "TLSv1.2", rejectUnauthorized: true } as const;
}
