import { checkText, checkWhole } from "../../../lock/checks.ts";
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

/** Returns the text for messages. */
export function showServers(servers: readonly ServerAddress[]): string {
  return servers.map(({ host, port }) => `${hostLiteral(host)}:${port}`).join(",");
}

/** The way to a server that is always the same. */
export function routeToServer(server: ServerAddress, dial: Dial): Route {
  return { address: `redis at ${showServers([server])}`, connect: dial(server) };
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
