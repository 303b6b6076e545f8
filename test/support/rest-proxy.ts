import { once } from "node:events";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { json } from "node:stream/consumers";
import { Redis } from "ioredis";

export interface RestAnswer {
  readonly status: number;
  readonly body: string;
}

/** Upstash's REST API in front of a Redis server on loopback. */
export class RestProxy implements AsyncDisposable {
  readonly token = "a-token";

  /** The commands that were sent to Redis. */
  readonly commands: (readonly string[])[] = [];
  readonly #redis: Redis;
  readonly #server: Server;
  #fault: RestAnswer | "lost" | undefined;

  private constructor(port: number) {
    this.#redis = new Redis(port, "127.0.0.1", { lazyConnect: true });
    this.#server = createServer((request, response) => void this.#serve(request, response));
  }

  static async to(port: number): Promise<RestProxy> {
    const proxy = new RestProxy(port);
    await once(proxy.#server.listen(0, "127.0.0.1"), "listening");
    return proxy;
  }

  get port(): number {
    return (this.#server.address() as AddressInfo).port;
  }

  get url(): string {
    return `http://127.0.0.1:${this.port}`;
  }

  /** Answers the next request with this, and does not pass the command on. */
  answerNext(answer: RestAnswer): void {
    this.#fault = answer;
  }

  /** Passes on the command of the next request, and ends the connection without an answer. */
  loseNextAnswer(): void {
    this.#fault = "lost";
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#server.closeAllConnections();
    this.#server.close();
    this.#redis.disconnect();
  }

  async #serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const fault = this.#fault;
    this.#fault = undefined;
    const isPlanned = typeof fault === "object";
    const answer = isPlanned ? fault : await this.#answer(request).catch(() => BROKEN);
    if (fault === "lost") request.socket.destroy();
    else response.writeHead(answer.status, { "Content-Type": "application/json" }).end(answer.body);
  }

  async #answer(request: IncomingMessage): Promise<RestAnswer> {
    const { headers, method, url } = request;
    if (headers.authorization !== `Bearer ${this.token}`) {
      return toAnswer(401, { error: "WRONGPASS invalid or missing auth token" });
    }
    if (method !== "POST" || url !== "/") return { status: 404, body: "Endpoint not found" };
    const command = (await json(request)) as [string, ...string[]];
    this.commands.push(command);
    const [name, ...args] = command;
    try {
      return toAnswer(200, { result: await this.#redis.call(name, args) });
    } catch (error) {
      const { name, message } = error as Error;
      return toAnswer(name === "ReplyError" ? 400 : 500, { error: message });
    }
  }
}

const BROKEN: RestAnswer = { status: 500, body: "the request broke" };

function toAnswer(status: number, body: object): RestAnswer {
  return { status, body: JSON.stringify(body) };
}
