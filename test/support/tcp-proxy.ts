import { once } from "node:events";
import { type AddressInfo, connect, createServer, type Server, type Socket } from "node:net";

type Pair = readonly [client: Socket, upstream: Socket];

/** A wire between a client and a server on loopback that can be cut, and that can lose a request or an answer. */
export class TcpProxy {
  readonly #server: Server;
  readonly #target: number;
  readonly #pairs = new Set<Pair>();

  /** Connections that are dead without either end being told. */
  readonly #dead = new WeakSet<Pair>();
  #cut = false;
  #connections = 0;
  #lose: "no" | "after next request" | "next answer" | "next request" = "no";

  /** How many requests get through before one is lost, or its answer. */
  #spared = 0;

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

  /** The existing connections go silent and neither end is told, not even of a close; new connections work. */
  blackhole(): void {
    for (const pair of this.#pairs) this.#dead.add(pair);
  }

  /** Ends all connections. */
  reset(): void {
    for (const pair of this.#pairs) for (const socket of pair) socket.destroy();
  }

  /** Lets the next request through, and ends its connection in place of the answer; `spared` ones before it pass. */
  loseNextAnswer(spared = 0): void {
    this.#spared = spared;
    this.#lose = "after next request";
  }

  /** Ends the connection in place of the next request; `spared` ones before it pass. */
  loseNextRequest(spared = 0): void {
    this.#spared = spared;
    this.#lose = "next request";
  }

  /** Whether what was to be lost is still to come. */
  get isToLose(): boolean {
    return this.#lose !== "no";
  }

  loseNothing(): void {
    this.#lose = "no";
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
      if (this.#cut || this.#dead.has(pair)) return;
      if (this.#spared > 0) this.#spared -= 1;
      else if (this.#lose === "after next request") this.#lose = "next answer";
      else if (this.#lose === "next request") {
        this.#lose = "no";
        client.destroy();
        return;
      }
      upstream.write(request);
    });
    upstream.on("data", (answer) => {
      if (this.#cut || this.#dead.has(pair)) return;
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
        if (this.#dead.has(pair) && pair.some(({ destroyed }) => !destroyed)) return;
        this.#pairs.delete(pair);
        client.destroy();
        upstream.destroy();
      });
    }
  }
}
