import { once } from "node:events";
import { type AddressInfo, connect, createServer, type Server, type Socket } from "node:net";
import type { ErrorAnswer } from "./error-answers.ts";

type Pair = readonly [client: Socket, upstream: Socket];

interface Address {
  readonly host: string;
  readonly port: number;
}

/** A proxy between a client and a server on loopback that can cut connections and lose requests and answers. */
export class TcpProxy {
  readonly #server: Server;
  readonly #target: Address;
  readonly #pairs = new Set<Pair>();

  /** Connections that drop all data without closing. */
  readonly #dead = new WeakSet<Pair>();
  #cut = false;
  #connections = 0;
  #dropped = 0;
  #lose: "no" | "after next request" | "next answer" | "next request" | "delay next request" = "no";
  readonly #late: { readonly upstream: Socket; readonly request: Buffer }[] = [];

  /** Requests to pass before the next fault. */
  #spared = 0;

  /** The connection whose next answer is lost. */
  #victim: Pair | undefined;

  /** Requests that always pass and do not count, such as those that end abandoned statements. */
  exempt: RegExp | undefined;

  /** Makes the answer in place of the lost one; undefined ends the connection. */
  #instead: ErrorAnswer | undefined;

  /** The request of the victim. */
  #request: Buffer = Buffer.alloc(0);

  /** Makes the answers of `failNextAnswer`. */
  #errorAnswer: ErrorAnswer | undefined;

  /** How long the server does not learn that a client has ended its connection, in milliseconds. */
  endDelay = 0;

  /** Connections that drop answers until they end. */
  readonly #muted = new WeakSet<Pair>();

  private constructor(target: Address) {
    this.#target = target;
    this.#server = createServer((client) => this.#join(client));
  }

  /** Makes a proxy that can also answer with errors, for a conformance suite. */
  static async toStore(target: number, errorAnswer: ErrorAnswer): Promise<TcpProxy> {
    const proxy = await TcpProxy.to(target);
    proxy.#errorAnswer = errorAnswer;
    return proxy;
  }

  /** `port` is that of the proxy; 0 for any. */
  static async to(target: number, port = 0, host = "127.0.0.1"): Promise<TcpProxy> {
    const proxy = new TcpProxy({ host, port: target });
    await once(proxy.#server.listen(port, "127.0.0.1"), "listening");
    return proxy;
  }

  get port(): number {
    return (this.#server.address() as AddressInfo).port;
  }

  /** The number of connections made so far. */
  get connections(): number {
    return this.#connections;
  }

  /** The number of connections that the client has open. */
  get open(): number {
    return [...this.#pairs].filter(([client]) => !client.destroyed).length;
  }

  /** How often data was dropped by a cut or on a dead connection. */
  get dropped(): number {
    return this.#dropped;
  }

  /** Drops all data in both directions without closing connections. */
  cut(): void {
    this.#cut = true;
  }

  /** Ends a cut and all connections. */
  mend(): void {
    this.#cut = false;
    this.reset();
  }

  /** Makes existing connections drop all data and not close. New connections work. */
  blackhole(): void {
    for (const pair of this.#pairs) this.#dead.add(pair);
  }

  /**
   * Delays the next request and all data after it on its connection, until `deliver()`. `spared` requests before it pass.
   */
  delayNextRequest(spared = 0): void {
    this.#spared = spared;
    this.#lose = "delay next request";
  }

  /** Delivers the delayed data, even if the client has given up. Returns whether any data was delayed. */
  deliver(): boolean {
    const late = this.#late.splice(0);
    for (const { upstream, request } of late) upstream.write(request);
    return late.length > 0;
  }

  /** Ends all connections. */
  reset(): void {
    for (const pair of this.#pairs) for (const socket of pair) socket.destroy();
  }

  /** Passes the next request and ends its connection in place of the answer. `spared` requests before it pass. */
  loseNextAnswer(spared = 0): void {
    this.#spared = spared;
    this.#instead = undefined;
    this.#lose = "after next request";
  }

  /** Passes the next request, sends `instead` in place of its answer, and ends the connection. */
  replaceNextAnswer(instead: Uint8Array): void {
    this.loseNextAnswer();
    this.#instead = () => instead;
  }

  /** Passes the next request, and sends an error that proves nothing in place of its answer. */
  failNextAnswer(): void {
    if (!this.#errorAnswer) throw new TypeError("this proxy does not know the protocol");
    this.loseNextAnswer();
    this.#instead = this.#errorAnswer;
  }

  /** Ends the connection in place of passing the next request. `spared` requests before it pass. */
  loseNextRequest(spared = 0): void {
    this.#spared = spared;
    this.#instead = undefined;
    this.#lose = "next request";
  }

  /** Sends `answer` to the next request without passing it on. */
  answerNextRequest(answer: Uint8Array): void {
    this.loseNextRequest();
    this.#instead = () => answer;
  }

  /** Whether the next fault has not happened yet. */
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

  #drops(pair: Pair): boolean {
    const drops = this.#cut || this.#dead.has(pair);
    if (drops) this.#dropped += 1;
    return drops;
  }

  #join(client: Socket): void {
    this.#connections += 1;
    const upstream = connect(this.#target);
    const pair = [client, upstream] as const;
    this.#pairs.add(pair);
    client.on("data", (request) => {
      if (this.#lose === "delay next request" && this.#spared === 0) {
        this.#lose = "no";
        this.#dead.add(pair);
        this.#late.push({ upstream, request });
        return;
      }
      if (this.#late.some((each) => each.upstream === upstream)) {
        this.#late.push({ upstream, request });
        return;
      }
      if (this.#drops(pair)) return;
      if (this.exempt?.test(request.toString("latin1"))) {
        upstream.write(request);
        return;
      }
      if (this.#spared > 0) this.#spared -= 1;
      else if (this.#lose === "after next request") {
        this.#lose = "next answer";
        this.#victim = pair;
        this.#request = request;
      } else if (this.#lose === "next request") {
        this.#lose = "no";
        if (this.#instead === undefined) client.destroy();
        else client.write(this.#instead(request));
        return;
      }
      upstream.write(request);
    });
    upstream.on("data", (answer) => {
      if (this.#drops(pair)) return;
      if (this.#muted.has(pair)) return;
      if (this.#lose === "next answer" && this.#victim === pair) {
        this.#lose = "no";
        const instead = this.#instead?.(this.#request);
        if (instead === undefined) return void client.destroy();
        this.#muted.add(pair);
        // An answer may have several parts: the server may still be working after the first one.
        setTimeout(() => client.end(instead), 50);
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
        setTimeout(() => upstream.destroy(), this.endDelay);
      });
    }
  }
}
