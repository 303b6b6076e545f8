import { createRequire } from "node:module";
import { etcdOver } from "./client.ts";
import type { Etcd, EtcdOptions, Lease } from "./etcd.ts";
import { abandoned, CallFailure, STATUS } from "./failure.ts";
import type { Transport, WatchEvents, Way } from "./transport.ts";
import { METHODS, type Message, type MethodName } from "./wire.ts";

/**
 * etcd over gRPC, for processes that live long.
 *
 * Of the package etcd3 only the raw clients are used: what it has above them retries writes, fails calls that
 * have nothing to do with the one that failed, and loses events.
 */
export function openEtcd(options: EtcdOptions): Etcd {
  return etcdOver(new Grpc(options), options);
}

/** What is used of a client that gRPC makes from etcd's service definitions. */
interface RawClient {
  [method: string]: (...args: never[]) => unknown;
}

interface RawCall {
  cancel(): void;
}

interface RawStream extends RawCall {
  write(message: Message): void;
  on(event: "data", listener: (message: Message) => void): this;
  on(event: "error", listener: (error: GrpcError) => void): this;
  on(event: "end", listener: () => void): this;
}

interface GrpcError extends Error {
  readonly code: number;
  readonly details: string;
}

type Metadata = { set(key: string, value: string): void };

interface Host {
  getServiceClient(service: "KV" | "Lease" | "Watch" | "Auth"): RawClient;
  close(): void;
}

interface Libraries {
  readonly Host: new (
    address: string,
    credentials: unknown,
    options: Readonly<Record<string, number>>,
    faultHandling: unknown,
  ) => Host;
  readonly grpc: {
    readonly Metadata: new () => Metadata;
    readonly credentials: {
      createInsecure(): unknown;
      createSsl(ca: Buffer | null, key: Buffer | null, cert: Buffer | null): unknown;
    };
  };
}

/** etcd3 itself and the copy of gRPC that it uses: of two copies, neither takes the other's objects. */
function load(): Libraries {
  const here = createRequire(import.meta.url);
  const { Host } = here("etcd3/lib/connection-pool.js");
  const grpc = createRequire(here.resolve("etcd3"))("@grpc/grpc-js");
  return { Host, grpc };
}

const CHANNEL = {
  // Without pings, a connection that was cut silently is noticed by nobody. The server ends connections that
  // ping more often than every 5 s.
  "grpc.keepalive_time_ms": 6_000,
  "grpc.keepalive_timeout_ms": 2_000,
  // A server that was restarted is found again soon.
  "grpc.initial_reconnect_backoff_ms": 50,
  "grpc.max_reconnect_backoff_ms": 1_000,
  // Any: an answer of more than 4 MB would otherwise be thrown away, though what was asked for was done.
  "grpc.max_receive_message_length": -1,
};

class Grpc implements Transport {
  readonly bytes = {
    encode: (bytes: Uint8Array) => bytes,
    decode: (bytes: unknown) => bytes as Uint8Array,
  };
  readonly #libraries = load();
  readonly #credentials: unknown;
  readonly #hosts = new Map<string, Host>();
  readonly #keepAlives = new Map<string, KeepAlives>();
  readonly #watches = new Map<string, Watches>();

  constructor({ tls }: EtcdOptions) {
    const { credentials } = this.#libraries.grpc;
    const pem = (text: string | undefined) => (text === undefined ? null : Buffer.from(text));
    this.#credentials = tls
      ? credentials.createSsl(pem(tls.ca), pem(tls.key), pem(tls.cert))
      : credentials.createInsecure();
  }

  call(name: MethodName, message: Message, way: Way): Promise<Message> {
    const { service, method } = METHODS[name];
    return this.#unary(service, method, message, way);
  }

  authenticate(message: Message, way: Way): Promise<Message> {
    return this.#unary("Auth", "authenticate", message, way);
  }

  keepAlive(lease: Lease, way: Way): Promise<Message> {
    const stream = this.#shared(this.#keepAlives, way, () => {
      return new KeepAlives(this.#stream("Lease", "leaseKeepAlive", way));
    });
    return stream.ask(String(lease), way.signal);
  }

  watch(create: Message, way: Omit<Way, "signal">, on: WatchEvents): () => void {
    const stream = this.#shared(this.#watches, way, () => {
      return new Watches(this.#stream("Watch", "watch", way));
    });
    return stream.create(create, on);
  }

  close(): void {
    for (const stream of [...this.#keepAlives.values(), ...this.#watches.values()]) stream.cancel();
    for (const host of this.#hosts.values()) host.close();
  }

  #unary(
    service: "KV" | "Lease" | "Auth",
    method: string,
    message: Message,
    { endpoint, token, signal }: Way,
  ): Promise<Message> {
    return new Promise((resolve, reject) => {
      if (signal.aborted) return reject(abandoned(signal, true));
      const answered = (error: GrpcError | null, answer?: Message) => {
        signal.removeEventListener("abort", onAbort);
        if (!error) resolve(answer as Message);
        else reject(signal.aborted ? abandoned(signal, isUnsent(error)) : toFailure(error));
      };
      const client = this.#host(endpoint).getServiceClient(service);
      const call = client[method]?.(
        ...([message, this.#metadata(token), answered] as never[]),
      ) as RawCall;
      const onAbort = () => call.cancel();
      signal.addEventListener("abort", onAbort, { once: true });
    });
  }

  /** The endpoint's one stream of a kind, opened when it is needed. */
  #shared<T extends { readonly over: boolean }>(
    streams: Map<string, T>,
    { endpoint }: Pick<Way, "endpoint">,
    open: () => T,
  ): T {
    const known = streams.get(endpoint);
    if (known && !known.over) return known;
    const opened = open();
    streams.set(endpoint, opened);
    return opened;
  }

  #stream(
    service: "Lease" | "Watch",
    method: string,
    { endpoint, token }: Omit<Way, "signal">,
  ): RawStream {
    const client = this.#host(endpoint).getServiceClient(service);
    return client[method]?.(...([this.#metadata(token)] as never[])) as RawStream;
  }

  #host(endpoint: string): Host {
    const known = this.#hosts.get(endpoint);
    if (known) return known;
    const host = new this.#libraries.Host(endpoint, this.#credentials, CHANNEL, undefined);
    this.#hosts.set(endpoint, host);
    return host;
  }

  #metadata(token: string | undefined): Metadata {
    const metadata = new this.#libraries.grpc.Metadata();
    // A member without a leader says so at once, instead of letting us wait.
    metadata.set("hasleader", "true");
    if (token !== undefined) metadata.set("token", token);
    return metadata;
  }
}

/** One stream for the keepalives of all leases. */
class KeepAlives {
  readonly #stream: RawStream;

  /** By lease, in the order in which they were asked for. */
  readonly #asked = new Map<string, Asked[]>();
  #over: CallFailure | undefined;

  constructor(stream: RawStream) {
    this.#stream = stream
      .on("data", (message) => this.#take(String(message.ID), message))
      .on("error", (error) => this.#end(toFailure(error)))
      .on("end", () => this.#end(new CallFailure(STATUS.unavailable, "the stream has ended")));
  }

  get over(): boolean {
    return this.#over !== undefined;
  }

  async ask(lease: string, signal: AbortSignal): Promise<Message> {
    if (signal.aborted) throw abandoned(signal, true);
    const asked = Promise.withResolvers<Message>();
    const line = this.#asked.get(lease) ?? [];
    this.#asked.set(lease, line);
    line.push(asked);
    // It keeps its place: its answer, if it still comes, must not be taken for the next one's.
    const onAbort = () => asked.reject(abandoned(signal, false));
    signal.addEventListener("abort", onAbort, { once: true });
    try {
      this.#stream.write({ ID: lease });
      return await asked.promise;
    } finally {
      signal.removeEventListener("abort", onAbort);
    }
  }

  cancel(): void {
    this.#stream.cancel();
  }

  #take(lease: string, answer: Message): void {
    const line = this.#asked.get(lease);
    line?.shift()?.resolve(answer);
    if (line?.length === 0) this.#asked.delete(lease);
  }

  #end(failure: CallFailure): void {
    this.#over ??= failure;
    const lines = [...this.#asked.values()];
    this.#asked.clear();
    for (const line of lines) for (const { reject } of line) reject(this.#over);
  }
}

type Asked = Pick<PromiseWithResolvers<Message>, "resolve" | "reject">;

/** One stream for all watches. Their ids are ours, so that no creation waits for the answer to another. */
class Watches {
  readonly #stream: RawStream;
  readonly #watches = new Map<string, WatchEvents>();
  #last = 0;
  #over = false;

  constructor(stream: RawStream) {
    this.#stream = stream
      .on("data", (message) => this.#take(message))
      .on("error", (error) => this.#end(toFailure(error)))
      .on("end", () => this.#end());
  }

  get over(): boolean {
    return this.#over;
  }

  create(create: Message, on: WatchEvents): () => void {
    this.#last += 1;
    const watch_id = String(this.#last);
    this.#watches.set(watch_id, on);
    this.#stream.write({ create_request: { ...create, watch_id } });
    return () => {
      if (!this.#watches.delete(watch_id) || this.#over) return;
      this.#stream.write({ cancel_request: { watch_id } });
    };
  }

  cancel(): void {
    this.#watches.clear();
    this.#stream.cancel();
  }

  #take({ header, watch_id, created, canceled, cancel_reason, events }: Message): void {
    const id = String(watch_id);
    const watch = this.#watches.get(id);
    if (canceled) {
      // The answer to our own request to end it.
      if (!watch && !created) return;
      const failure = new CallFailure(STATUS.cancelled, String(cancel_reason));
      this.#watches.delete(id);
      watch?.ended(failure);
      // Refused rather than ended: of the stream, not of one watch.
      if (!watch) this.#refuse(failure);
      return;
    }
    if (created) watch?.created(header);
    if ((events as readonly unknown[]).length > 0) watch?.events(events);
  }

  #refuse(failure: CallFailure): void {
    this.#end(failure);
    this.#stream.cancel();
  }

  #end(failure?: CallFailure): void {
    if (this.#over) return;
    this.#over = true;
    const watches = [...this.#watches.values()];
    this.#watches.clear();
    for (const { ended } of watches) ended(failure);
  }
}

/** gRPC's own failures before anything was sent have texts, and no codes of their own. */
const UNSENT = [
  /^No connection established/,
  /^Name resolution failed/,
  /^Channel closed before call started/,
  /Waiting for LB pick/,
];

function isUnsent({ details = "" }: GrpcError): boolean {
  return UNSENT.some((text) => text.test(details));
}

function toFailure(error: GrpcError): CallFailure {
  const { code = STATUS.unknown, details, message } = error;
  const unsent = isUnsent(error);
  // Of a certificate that is not accepted, ours or theirs, only the text of a failed connection tells.
  const isUntrusted = unsent && /certificate/i.test(details);
  const status = isUntrusted ? STATUS.unauthenticated : code;
  return new CallFailure(status, details || message, { unsent, cause: error });
}
