import { after, type Millis } from "../lock/time.ts";
import { base64 } from "./base64.ts";
import { etcdOver } from "./client.ts";
import type { Etcd, EtcdOptions, Lease } from "./etcd.ts";
import { abandoned, CallFailure, STATUS } from "./failure.ts";
import { toFailure } from "./fetch-failure.ts";
import { textOf, toMessage } from "./http-answer.ts";
import { linesOf } from "./lines.ts";
import type { Transport, WatchEvents, Way } from "./transport.ts";
import { METHODS, type Message, type MethodName } from "./wire.ts";

export interface GatewayOptions extends EtcdOptions {
  /**
   * In place of the runtime's own, which cannot be given certificates. For Node, `nodeFetch` makes one, with
   * certificates or without: it also takes less time to load than Node's own.
   */
  readonly fetch?: Fetch;
}

/** As much of `fetch` as is used. */
export type Fetch = (url: string, request: PostRequest) => Promise<FetchAnswer>;

/** As much of a Response as is used. */
export interface FetchAnswer {
  readonly status: number;
  readonly body: AsyncIterable<Uint8Array> | null;
  text(): Promise<string>;
}

interface PostRequest {
  readonly method: "POST";
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
  readonly redirect: "manual";
  readonly signal: AbortSignal;
}

/** etcd over its JSON API, for where there is nothing but `fetch`: each call is a request of its own. */
export function openEtcdGateway(options: GatewayOptions): Etcd {
  return etcdOver(new Gateway(options), options);
}

/**
 * A watch that hears nothing for so long is made anew: there are no pings that would tell a quiet connection
 * from one that was cut silently.
 */
const LONGEST_SILENCE: Millis = 8_000;

class Gateway implements Transport {
  readonly bytes = base64;
  readonly #scheme: string;
  readonly #fetch: Fetch;

  // Not the runtime's fetch itself: some refuse to have it called as a method.
  constructor({ tls, fetch = (url, init) => globalThis.fetch(url, init) }: GatewayOptions) {
    if (tls?.ca || tls?.cert || tls?.key) {
      throw new TypeError("the runtime's fetch takes no certificates: pass a fetch that has them");
    }
    this.#scheme = tls ? "https" : "http";
    this.#fetch = fetch;
  }

  call(name: MethodName, message: Message, way: Way): Promise<Message> {
    return this.#ask(METHODS[name].path, message, way);
  }

  authenticate(message: Message, way: Way): Promise<Message> {
    return this.#ask("/v3/auth/authenticate", message, way);
  }

  keepAlive(lease: Lease, way: Way): Promise<Message> {
    return this.#ask("/v3/lease/keepalive", { ID: String(lease) }, way);
  }

  watch(create: Message, way: Omit<Way, "signal">, on: WatchEvents): () => void {
    const connection = new AbortController();
    const { signal } = connection;
    let cancel = () => {};
    const stop = () => {
      cancel();
      connection.abort();
    };
    const end = (failure?: unknown) => {
      if (signal.aborted) return;
      stop();
      on.ended(failure);
    };
    const waitForMore = () => {
      cancel();
      cancel = after(LONGEST_SILENCE, () => end(), { idle: true });
    };
    waitForMore();
    const heard = (message: Message) => {
      waitForMore();
      tell(message, on);
    };
    void this.#follow({ create_request: create }, { ...way, signal }, heard).then(end, end);
    return stop;
  }

  /** Every request ends with the signal it was given. */
  close(): void {}

  async #ask(path: string, message: Message, way: Way): Promise<Message> {
    if (way.signal.aborted) throw abandoned(way.signal, true);
    try {
      const response = await this.#post(path, message, way);
      return toMessage(response.status, await textOf(response));
    } catch (error) {
      throw toFailure(error, way.signal);
    }
  }

  async #follow(request: Message, way: Way, heard: (message: Message) => void): Promise<void> {
    const { status, body } = await this.#post("/v3/watch", request, way);
    if (!body) return;
    for await (const line of linesOf(body)) {
      if (way.signal.aborted) return;
      heard(toMessage(status, line));
    }
  }

  #post(path: string, message: Message, { endpoint, token, signal }: Way): Promise<FetchAnswer> {
    return this.#fetch(`${this.#scheme}://${endpoint}${path}`, {
      method: "POST",
      headers: {
        "Content-Type": "application/json",
        // A member without a leader says so at once, instead of letting us wait.
        "Grpc-Metadata-hasleader": "true",
        ...(token !== undefined && { Authorization: token }),
      },
      body: JSON.stringify(message),
      // What is meant for one endpoint is not sent to another.
      redirect: "manual",
      signal,
    });
  }
}

function tell(
  { header, created, canceled, cancel_reason, events }: Message,
  on: WatchEvents,
): void {
  if (canceled) throw new CallFailure(STATUS.cancelled, String(cancel_reason));
  if (created) on.created(header);
  if (events) on.events(events);
}
