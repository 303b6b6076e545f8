import { once } from "node:events";
import { type AddressInfo, connect, createServer, type Server, type Socket } from "node:net";

/** A wire between a client and a server on loopback that can be cut, and that can lose a request or an answer. */
export class TcpProxy {
  readonly #server: Server;
  readonly #target: number;
  readonly #pairs = new Set<readonly [client: Socket, upstream: Socket]>();
  #cut = false;
  #connections = 0;
  #lose: "no" | "next request" | "after next request" | "next answer" = "no";

  private constructor(target: number) {
    this.#target = target;
    this.#server = createServer((client) => this.#join(client));
  }

  static async to(target: number, port = 0): Promise<TcpProxy> {
    const proxy = new TcpProxy(target);
    await once(proxy.#server.listen(port, "127.0.0.1"), "listening");
    return proxy;
  }

  get port(): number {
    return (this.#server.address() as AddressInfo).port;
  }

  /** How many connections were made so far. */
  get connections(): number {
    return this.#connections;
  }

  /** From now on nothing gets through, and nobody is told. */
  cut(): void {
    this.#cut = true;
  }

  mend(): void {
    this.#cut = false;
    this.reset();
  }

  /** Ends all connections. */
  reset(): void {
    for (const pair of this.#pairs) for (const socket of pair) socket.destroy();
  }

  /** Lets the next request through, and ends its connection in place of the answer. */
  loseNextAnswer(): void {
    this.#lose = "after next request";
  }

  /** Ends the connection of the next request, which does not get through. */
  loseNextRequest(): void {
    this.#lose = "next request";
  }

  async close(): Promise<void> {
    this.#server.close();
    this.reset();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  #join(client: Socket): void {
    this.#connections += 1;
    const upstream = connect(this.#target, "127.0.0.1");
    const pair = [client, upstream] as const;
    this.#pairs.add(pair);
    client.on("data", (request) => {
      if (this.#cut) return;
      if (this.#lose === "next request") {
        this.#lose = "no";
        client.destroy();
        return;
      }
      if (this.#lose === "after next request") this.#lose = "next answer";
      upstream.write(request);
    });
    upstream.on("data", (answer) => {
      if (this.#cut) return;
      if (this.#lose === "next answer") {
        this.#lose = "no";
        client.destroy();
        return;
      }
      client.write(answer);
    });
    for (const socket of pair) {
      socket.on("error", () => {});
      socket.on("close", () => {
        this.#pairs.delete(pair);
        client.destroy();
        upstream.destroy();
      });
    }
  }
}
