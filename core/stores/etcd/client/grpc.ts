import type { SecureContext } from "node:tls";
import { secureContext } from "../../secure-context.ts";
import { etcdOver } from "./client.ts";
import { withPlainEndpoints } from "./endpoints.ts";
import type { Etcd, EtcdOptions, LeaseId } from "./etcd.ts";
import { abortFailure, CallFailure, STATUS } from "./failure.ts";
import { Http2Connection } from "./http2.ts";
import { RPCS, type Rpc } from "./rpcs.ts";
import {
  type MessageStream,
  SharedStreams,
  type StreamHandler,
  type StreamName,
  type StreamOptions,
} from "./streams.ts";
import type { CallOptions, Transport, WatchHandler } from "./transport.ts";
import { type Message, type MethodName, plainBytes } from "./wire.ts";

/** Makes a client over gRPC, on Node's own HTTP/2. It connects on first use. */
export function etcdClient(options: EtcdOptions): Etcd {
  const plain = withPlainEndpoints(options);
  return etcdOver(new Grpc(plain), plain);
}

class Grpc implements Transport {
  readonly bytes = plainBytes;
  readonly #tls: SecureContext | undefined;
  readonly #connections = new Map<string, Http2Connection>();
  readonly #streams = new SharedStreams((...args) => this.#stream(...args));
  #isClosed = false;

  constructor({ tls }: EtcdOptions) {
    this.#tls = tls && secureContext("etcd", tls);
  }

  call(name: MethodName, message: Message, options: CallOptions): Promise<Message> {
    return this.#ask(RPCS[name], message, options);
  }

  authenticate(message: Message, options: CallOptions): Promise<Message> {
    return this.#ask(RPCS.authenticate, message, options);
  }

  keepAlive(lease: LeaseId, options: CallOptions): Promise<Message> {
    return this.#streams.keepAlive(lease, options);
  }

  watch(create: Message, options: StreamOptions, on: WatchHandler): () => void {
    return this.#streams.watch(create, options, on);
  }

  reconnect(endpoint: string): void {
    this.#leave(endpoint, "the connection does not answer");
  }

  close(): void {
    this.#isClosed = true;
    this.#streams.close();
    for (const connection of this.#connections.values()) connection.destroy();
  }

  async #ask(
    { path, encode, decode }: Rpc,
    message: Message,
    { endpoint, token, signal }: CallOptions,
  ): Promise<Message> {
    const request = encode(message);
    if (this.#isClosed) throw closed();
    const connection = this.#connection(endpoint);
    if (!connection.isReady) await connection.ready(signal);
    if (signal.aborted) throw abortFailure(signal, true);
    const { promise, resolve, reject } = Promise.withResolvers<Message>();
    let answer: Message | undefined;
    const sender = connection.begin({
      path,
      token,
      decode,
      received: (received) => {
        answer = received;
      },
      ended: (failure) => {
        signal.removeEventListener("abort", onAbort);
        if (answer && !failure) resolve(answer);
        else reject(failure ?? new CallFailure(STATUS.unknown, "the answer has no message"));
      },
    });
    const onAbort = () => {
      reject(abortFailure(signal, false));
      sender.cancel();
    };
    signal.addEventListener("abort", onAbort, { once: true });
    sender.sendLast(request);
    return promise;
  }

  #stream(
    name: StreamName,
    { endpoint, token }: StreamOptions,
    { received, ended }: StreamHandler,
  ): MessageStream {
    const { path, encode, decode } = RPCS[name];
    if (this.#isClosed) {
      queueMicrotask(() => ended(closed()));
      return { write: () => {}, cancel: () => {} };
    }
    const over = new CallFailure(STATUS.unavailable, "the stream has ended");
    const { send, cancel } = this.#connection(endpoint).begin({
      path,
      token,
      decode,
      received,
      ended: (failure = over) => ended(failure),
    });
    return { write: (message) => send(encode(message)), cancel };
  }

  #connection(endpoint: string): Http2Connection {
    const known = this.#connections.get(endpoint);
    if (known && !known.isOver) return known;
    const connection = new Http2Connection({
      url: `${this.#tls ? "https" : "http"}://${endpoint}`,
      tls: this.#tls,
      onGoaway: () => {
        if (this.#connections.get(endpoint) !== connection) return;
        this.#leave(endpoint, "the server ends the connection");
      },
    });
    this.#connections.set(endpoint, connection);
    return connection;
  }

  /** Leaves a connection to its pending calls. */
  #leave(endpoint: string, why: string): void {
    this.#connections.get(endpoint)?.retire();
    this.#connections.delete(endpoint);
    this.#streams.end(endpoint, new CallFailure(STATUS.unavailable, why));
  }
}

function closed(): CallFailure {
  return new CallFailure(STATUS.unavailable, "the client is closed", { unsent: true });
}
