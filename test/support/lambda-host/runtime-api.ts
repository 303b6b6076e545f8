import { once } from "node:events";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { text } from "node:stream/consumers";

/** The requests of the process in an environment. */
export type Said =
  /** A request for an event: the process has loaded its handler, or has finished the last event. */
  | { readonly type: "ready" }
  | { readonly type: "response" | "error" | "init-error"; readonly body: string };

export interface Event {
  readonly id: string;
  readonly endsAt: number;
  readonly arn: string;
  readonly body: string;
}

/** Lambda's runtime API for one environment: docs.aws.amazon.com/lambda/latest/dg/runtimes-api.html */
export class RuntimeApi {
  readonly #server: Server;
  readonly #onSaid: (said: Said) => void;
  #asking: ServerResponse | undefined;

  private constructor(onSaid: (said: Said) => void) {
    this.#onSaid = onSaid;
    this.#server = createServer((request, response) => void this.#answer(request, response));
    // The connection of a frozen environment stays valid, however long the freeze lasts.
    this.#server.keepAliveTimeout = 0;
  }

  static async listen(onSaid: (said: Said) => void): Promise<RuntimeApi> {
    const api = new RuntimeApi(onSaid);
    api.#server.listen(0, "127.0.0.1");
    await once(api.#server, "listening");
    return api;
  }

  /** HOST:PORT, the value of AWS_LAMBDA_RUNTIME_API. */
  get address(): string {
    return `127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  /** Sends the event to the process that requests one. */
  deliver({ id, endsAt, arn, body }: Event): void {
    if (!this.#asking) throw new Error("the process has not asked for an event");
    this.#asking.writeHead(200, {
      "content-type": "application/json",
      "lambda-runtime-aws-request-id": id,
      "lambda-runtime-deadline-ms": String(endsAt),
      "lambda-runtime-invoked-function-arn": arn,
    });
    this.#asking.end(body);
    this.#asking = undefined;
  }

  close(): void {
    this.#server.close();
    this.#server.closeAllConnections();
  }

  async #answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const url = request.url ?? "";
    if (url.endsWith("/invocation/next")) {
      this.#asking = response;
      return this.#onSaid({ type: "ready" });
    }
    const body = await text(request);
    response.writeHead(202).end("{}");
    const type = url.endsWith("/init/error") ? "init-error" : url.split("/").at(-1);
    this.#onSaid({ type: type as "response", body });
  }
}
