import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { createAdaptorServer } from "@hono/node-server";
import type { Millis } from "../../core/lock/time.ts";
import type { Fetches } from "./lambda.ts";

export interface ServerOptions {
  /** Default 127.0.0.1. */
  readonly host?: string;

  /** Default any that is free. */
  readonly port?: number;
}

export interface HttpServer {
  readonly url: string;

  /**
   * Takes no more requests and resolves once all that are under way are answered, at the latest after `grace`
   * milliseconds: what is left then is cut off. Idle connections are closed at once.
   */
  close(grace: Millis): Promise<void>;
}

/** Serves the app over HTTP/1.1 on Node. Rejects with a TypeError when it cannot listen there. */
export async function serveHttp(
  app: Fetches,
  { host = "127.0.0.1", port = 0 }: ServerOptions = {},
): Promise<HttpServer> {
  const server = createAdaptorServer({
    fetch: (request) => app.fetch(request, {}),
    createServer,
    // Otherwise Request and Response become other ones for the whole process.
    overrideGlobalObjects: false,
  }) as Server;
  await new Promise<void>((resolve, reject) => {
    server.once("error", ({ message }) => {
      reject(new TypeError(`cannot listen at port ${port}; 0 is any that is free (${message})`));
    });
    server.listen(port, host, resolve);
  });
  const { port: bound } = server.address() as AddressInfo;
  const name = host.includes(":") ? `[${host}]` : host;
  return { url: `http://${name}:${bound}`, close: (grace) => close(server, grace) };
}

async function close(server: Server, grace: Millis): Promise<void> {
  const closed = new Promise<void>((resolve) => server.close(() => resolve()));
  const cut = setTimeout(() => server.closeAllConnections(), grace);
  await closed;
  clearTimeout(cut);
}
