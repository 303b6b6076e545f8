import { checkText, checkWhole } from "../../../lock/checks.ts";
import type { Dial, Route, ServerAddress } from "./connection.ts";
import type { RedisServer } from "./redis.ts";

/** Returns the server with its port. Throws for a bad host or port. */
export function toAddress({ host, port }: RedisServer, defaultPort = 6_379): ServerAddress {
  checkText("host", host, 1_000);
  const address = { host, port: port ?? defaultPort };
  checkWhole("port", address.port, 1, 65_535);
  return address;
}

/** Returns the text for messages. */
export function showServers(servers: readonly ServerAddress[]): string {
  return servers
    .map(({ host, port }) => `${host.includes(":") ? `[${host}]` : host}:${port}`)
    .join(",");
}

/** The way to a server that is always the same. */
export function routeToServer(server: ServerAddress, dial: Dial): Route {
  return { address: `redis at ${showServers([server])}`, connect: dial(server) };
}

/** Throws for a client of the user that accepts any certificate. */
export function checkTls(
  tls: { readonly rejectUnauthorized?: boolean | undefined } | undefined,
): void {
  if (tls?.rejectUnauthorized !== false) return;
  throw new TypeError("the client has rejectUnauthorized: false; Lockstep always checks");
}
