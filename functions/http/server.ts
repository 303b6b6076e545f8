import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { createAdaptorServer } from "@hono/node-server";
import { checkFunction, checkText, checkWhole } from "../../core/lock/checks.ts";
import { type Duration, toMillis } from "../../core/lock/duration.ts";
import { checkOptionNames, type OptionNames } from "../../core/lock/options.ts";
import type { Millis } from "../../core/lock/time.ts";
import { hostLiteral } from "../../core/stores/host-literal.ts";
import type { FetchApp } from "./lambda.ts";

export interface ServerOptions {
  /** Default 127.0.0.1. */
  readonly host?: string;

  /** Default: any free port. */
  readonly port?: number;
}

const OPTIONS = { host: true, port: true } satisfies OptionNames<ServerOptions>;

export interface HttpServer {
  readonly url: string;

  /**
   * Stops accepting requests, closes idle connections, and resolves when all active requests have their response. After
   * `grace` the remaining connections are closed.
   */
  close(grace: Duration): Promise<void>;
}

/** Serves the app over HTTP/1.1 on Node. Rejects with a TypeError or RangeError when the port cannot be opened. */
export async function serveHttp(app: FetchApp, options: ServerOptions = {}): Promise<HttpServer> {
  checkFunction("fetch of the app of serveHttp", app?.fetch);
  checkOptionNames("serveHttp", options, OPTIONS);
  const { host = "127.0.0.1", port = 0 } = options;
  checkText("host", host, 255);
  checkWhole("port", port, 0, 65_535);
  const server = createAdaptorServer({
    fetch: (request) => app.fetch(request, {}),
    createServer,
    // Otherwise the adapter replaces Request and Response for the whole process.
    overrideGlobalObjects: false,
  }) as Server;
  await new Promise<void>((resolve, reject) => {
    server.once("error", ({ message }) => {
      reject(
        new TypeError(
          `cannot listen on port ${port}: ${message}; choose another port, or 0 for any free one`,
        ),
      );
    });
    server.listen(port, host, resolve);
  });
  const { port: bound } = server.address() as AddressInfo;
  const name = hostLiteral(host);
  return {
    url: `http://${name}:${bound}`,
    close: async (grace) => close(server, toMillis("grace", grace)),
  };
}

async function close(server: Server, grace: Millis): Promise<void> {
  const closed = new Promise<void>((resolve) => server.close(() => resolve()));
  const cut = setTimeout(() => server.closeAllConnections(), grace);
  await closed;
  clearTimeout(cut);
}
