import { noAnswer } from "../../../lock/abort.ts";
import { after, type Millis } from "../../../lock/time.ts";
import { type Fetch, type FetchAnswer, runtimeFetch } from "../../fetch.ts";
import { etcdOver } from "./client.ts";
import { withPlainEndpoints } from "./endpoints.ts";
import type { Etcd, EtcdOptions, LeaseId } from "./etcd.ts";
import { abortFailure, CallFailure, STATUS, watchFailure } from "./failure.ts";
import { linesOf, textOf, toFailure, toMessage } from "./fetch.ts";
import type { CallOptions, Transport, WatchHandler } from "./transport.ts";
import { base64, METHODS, type Message, type MethodName } from "./wire.ts";

export interface GatewayOptions extends EtcdOptions {
  /**
   * Replaces the runtime's `fetch`, which cannot use certificates. For Node, `nodeFetch` makes one, with or without
   * certificates, which also loads faster than Node's own.
   */
  readonly fetch?: Fetch;
}

/** Makes a client over etcd's JSON API, for runtimes with nothing but `fetch`: each call is a request of its own. */
export function etcdGatewayClient(options: GatewayOptions): Etcd {
  const plain = withPlainEndpoints(options);
  return etcdOver(new Gateway(plain), plain);
}

/**
 * The longest silence of a watch before it is created again: HTTP has no pings, so a quiet connection looks like a dead one.
 */
const LONGEST_SILENCE: Millis = 8_000;

class Gateway implements Transport {
  readonly bytes = base64;
  readonly #scheme: string;
  readonly #fetch: Fetch;

  constructor({ tls, fetch = runtimeFetch }: GatewayOptions) {
    if (tls?.ca || tls?.cert || tls?.key) {
      throw new TypeError("the runtime's fetch takes no certificates: pass a fetch that has them");
    }
    this.#scheme = tls ? "https" : "http";
    this.#fetch = fetch;
  }

  call(name: MethodName, message: Message, options: CallOptions): Promise<Message> {
    return this.#ask(METHODS[name].path, message, options);
  }

  authenticate(message: Message, options: CallOptions): Promise<Message> {
    return this.#ask("/v3/auth/authenticate", message, options);
  }

  keepAlive(lease: LeaseId, options: CallOptions): Promise<Message> {
    return this.#ask("/v3/lease/keepalive", { ID: String(lease) }, options);
  }

  watch(create: Message, options: Omit<CallOptions, "signal">, on: WatchHandler): () => void {
    const connection = new AbortController();
    const { signal } = connection;
    let cancel = () => {};
    const stop = () => {
      cancel();
      connection.abort();
    };
    const end = (failure: unknown) => {
      if (signal.aborted) return;
      stop();
      on.ended(failure);
    };
    const waitForMore = (silence?: Error) => {
      cancel();
      cancel = after(LONGEST_SILENCE, () => end(silence), { idle: true });
    };
    waitForMore(noAnswer());
    const heard = (message: Message) => {
      // Silence after an answer is no failure: nothing has changed.
      waitForMore();
      tell(message, on);
    };
    const over = () => end(new CallFailure(STATUS.unavailable, "the stream has ended"));
    void this.#follow({ create_request: create }, { ...options, signal }, heard).then(over, end);
    return stop;
  }

  /** Does nothing: an aborted request closes its connection, and a watch detects silence. */
  reconnect(): void {}

  /** Does nothing: every request ends with its signal. */
  close(): void {}

  async #ask(path: string, message: Message, options: CallOptions): Promise<Message> {
    if (options.signal.aborted) throw abortFailure(options.signal, true);
    try {
      const response = await this.#post(path, message, options);
      return toMessage(response.status, await textOf(response));
    } catch (error) {
      throw toFailure(error, options.signal);
    }
  }

  async #follow(
    request: Message,
    options: CallOptions,
    heard: (message: Message) => void,
  ): Promise<void> {
    const { status, body } = await this.#post("/v3/watch", request, options);
    if (!body) return;
    for await (const line of linesOf(body)) {
      if (options.signal.aborted) return;
      heard(toMessage(status, line));
    }
  }

  #post(
    path: string,
    message: Message,
    { endpoint, token, signal }: CallOptions,
  ): Promise<FetchAnswer> {
    return this.#fetch(`${this.#scheme}://${endpoint}${path}`, {
      method: "POST",
      headers: {
        "Content-Type": "application/json",
        // A member without a leader answers at once.
        "Grpc-Metadata-hasleader": "true",
        ...(token !== undefined && { Authorization: token }),
      },
      body: JSON.stringify(message),
      // A request for one endpoint is not sent to another one.
      redirect: "manual",
      signal,
    });
  }
}

function tell(
  { header, created, canceled, cancel_reason, events }: Message,
  on: WatchHandler,
): void {
  if (canceled) throw watchFailure(cancel_reason, Boolean(created));
  if (created) on.created(header);
  if (events) on.events(events);
}
