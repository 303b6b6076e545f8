import { after, type Millis } from "../../../lock/time.ts";
import { importUnbundled } from "../../import-unbundled.js";
import { importError } from "../../peer.ts";
import { etcdOver } from "./client.ts";
import { withPlainEndpoints } from "./endpoints.ts";
import type { Etcd, EtcdOptions, LeaseId } from "./etcd.ts";
import { abortFailure, CallFailure, STATUS } from "./failure.ts";
import type { CallOptions, Transport, WatchHandler } from "./transport.ts";
import { METHODS, type Message, type MethodName } from "./wire.ts";

/**
 * Makes a client over gRPC, for long-lived processes.
 *
 * The client uses only the raw clients of the package etcd3: the layers above them repeat writes, fail unrelated calls and
 * lose events.
 */
export function etcdClient(options: EtcdOptions, etcd3: Etcd3): Etcd {
  const plain = withPlainEndpoints(options);
  return etcdOver(new Grpc(plain, etcd3), plain);
}

/** The part of gRPC's clients, made from etcd's service definitions, that is used here. */
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

interface Metadata {
  set(key: string, value: string): void;
  clone(): Metadata;
}

interface Host {
  getServiceClient(service: "KV" | "Lease" | "Watch" | "Auth"): RawClient;
  close(): void;
}

interface Etcd3Connection {
  readonly hosts: string;
  readonly credentials?: {
    readonly rootCertificate: Buffer | null;
    readonly privateKey: Buffer | null;
    readonly certChain: Buffer | null;
  };
}

interface ConnectionPool {
  buildAuthentication(): unknown;
  readonly authenticator: { getMetadata(): Promise<Metadata> };
}

interface Etcd3Module {
  readonly Host: new (
    address: string,
    credentials: unknown,
    options: Readonly<Record<string, number>>,
    faultHandling: unknown,
  ) => Host;
  readonly ConnectionPool: new (connection: Etcd3Connection) => ConnectionPool;
}

/** The package etcd3. Its copy of gRPC is reached through etcd3: another copy does not accept the objects of this one. */
export interface Etcd3 extends Etcd3Module {
  readonly emptyMetadata: Metadata;
}

/** Loads etcd3, which reads its protocol from files. Rejects with a TypeError when etcd3 is not installed. */
export async function loadEtcd3(): Promise<Etcd3> {
  const loaded = await importEtcd3();
  const { authenticator } = new loaded.ConnectionPool({ hosts: ANY_HOST });
  return { ...loaded, emptyMetadata: await authenticator.getMetadata() };
}

async function importEtcd3(): Promise<Etcd3Module> {
  try {
    return await importUnbundled("etcd3/lib/connection-pool.js");
  } catch (error) {
    throw importError("etcd3", error, "etcd over gRPC");
  }
}

/** etcd3's pools connect on first use. Those here are never used. */
const ANY_HOST = "localhost";

const CHANNEL = {
  // Only pings detect a connection that was cut silently. The server ends connections that ping more often than every 5 s.
  "grpc.keepalive_time_ms": 6_000,
  "grpc.keepalive_timeout_ms": 2_000,
  // Reconnects soon after a restart of the server.
  "grpc.initial_reconnect_backoff_ms": 50,
  "grpc.max_reconnect_backoff_ms": 1_000,
  // No limit: by default, an answer above 4 MB is discarded although the request was carried out.
  "grpc.max_receive_message_length": -1,
};

class Grpc implements Transport {
  readonly bytes = {
    encode: (bytes: Uint8Array) => bytes,
    decode: (bytes: unknown) => bytes as Uint8Array,
  };
  readonly #etcd3: Etcd3;
  readonly #credentials: unknown;
  readonly #hosts = new Map<string, Host>();
  readonly #keepAlives = new Map<string, KeepAliveStream>();
  readonly #watches = new Map<string, WatchStream>();
  #reconnects = 0;

  constructor({ tls }: EtcdOptions, etcd3: Etcd3) {
    const pem = (text: string | undefined) => (text === undefined ? null : Buffer.from(text));
    const credentials = tls && {
      rootCertificate: pem(tls.ca),
      privateKey: pem(tls.key),
      certChain: pem(tls.cert),
    };
    const pool = new etcd3.ConnectionPool({ hosts: ANY_HOST, ...(credentials && { credentials }) });
    this.#credentials = pool.buildAuthentication();
    this.#etcd3 = etcd3;
  }

  call(name: MethodName, message: Message, options: CallOptions): Promise<Message> {
    const { service, method } = METHODS[name];
    return this.#unary(service, method, message, options);
  }

  authenticate(message: Message, options: CallOptions): Promise<Message> {
    return this.#unary("Auth", "authenticate", message, options);
  }

  keepAlive(lease: LeaseId, options: CallOptions): Promise<Message> {
    const stream = this.#shared(this.#keepAlives, options, () => {
      return new KeepAliveStream(this.#stream("Lease", "leaseKeepAlive", options));
    });
    return stream.ask(String(lease), options.signal);
  }

  watch(create: Message, options: Omit<CallOptions, "signal">, on: WatchHandler): () => void {
    const stream = this.#shared(this.#watches, options, () => {
      return new WatchStream(this.#stream("Watch", "watch", options));
    });
    return stream.create(create, on);
  }

  reconnect(endpoint: string): void {
    const failure = new CallFailure(STATUS.unavailable, "the connection does not answer");
    const host = this.#hosts.get(endpoint);
    this.#hosts.delete(endpoint);
    this.#reconnects += 1;
    this.#keepAlives.get(endpoint)?.end(failure);
    this.#watches.get(endpoint)?.end(failure);
    // Pending calls may still be answered, and have deadlines of their own.
    host?.close();
  }

  close(): void {
    for (const stream of [...this.#keepAlives.values(), ...this.#watches.values()]) stream.cancel();
    for (const host of this.#hosts.values()) host.close();
  }

  #unary(
    service: "KV" | "Lease" | "Auth",
    method: string,
    message: Message,
    { endpoint, token, signal }: CallOptions,
  ): Promise<Message> {
    return new Promise((resolve, reject) => {
      if (signal.aborted) return reject(abortFailure(signal, true));
      const answered = (error: GrpcError | null, answer?: Message) => {
        signal.removeEventListener("abort", onAbort);
        if (!error) resolve(answer as Message);
        else reject(signal.aborted ? abortFailure(signal, isUnsent(error)) : toFailure(error));
      };
      const client = this.#host(endpoint).getServiceClient(service);
      const call = client[method]?.(
        ...([message, this.#metadata(token), answered] as never[]),
      ) as RawCall;
      const onAbort = () => call.cancel();
      signal.addEventListener("abort", onAbort, { once: true });
    });
  }

  /** Returns the endpoint's stream of a kind, opened on first use. */
  #shared<T extends { readonly over: boolean }>(
    streams: Map<string, T>,
    { endpoint }: Pick<CallOptions, "endpoint">,
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
    { endpoint, token }: Omit<CallOptions, "signal">,
  ): RawStream {
    const client = this.#host(endpoint).getServiceClient(service);
    return client[method]?.(...([this.#metadata(token)] as never[])) as RawStream;
  }

  #host(endpoint: string): Host {
    const known = this.#hosts.get(endpoint);
    if (known) return known;
    // A new option, because channels with equal options share their connections.
    const fresh = this.#reconnects > 0 ? { "lockstep.reconnects": this.#reconnects } : {};
    const channel = { ...CHANNEL, ...fresh };
    const host = new this.#etcd3.Host(endpoint, this.#credentials, channel, undefined);
    this.#hosts.set(endpoint, host);
    return host;
  }

  #metadata(token: string | undefined): Metadata {
    const metadata = this.#etcd3.emptyMetadata.clone();
    // A member without a leader answers at once.
    metadata.set("hasleader", "true");
    if (token !== undefined) metadata.set("token", token);
    return metadata;
  }
}

/** The stream for the keepalives of all leases. */
class KeepAliveStream {
  readonly #stream: RawStream;

  /** By lease, in the order of the requests. */
  readonly #asked = new Map<string, PendingKeepAlive[]>();
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
    if (signal.aborted) throw abortFailure(signal, true);
    const asked = Promise.withResolvers<Message>();
    const line = this.#asked.get(lease) ?? [];
    this.#asked.set(lease, line);
    line.push(asked);
    // An aborted request stays in the list: its answer, if it still comes, is not that of the next one.
    const onAbort = () => asked.reject(abortFailure(signal, false));
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

  end(failure: CallFailure): void {
    this.#end(failure);
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

type PendingKeepAlive = Pick<PromiseWithResolvers<Message>, "resolve" | "reject">;

/** A watch whose creation was requested, or will be. */
interface PendingWatch {
  readonly request: Message;
  readonly on: WatchHandler;

  /** The id from the server; undefined until its answer. */
  id?: string;
  isStopped?: boolean;
}

/**
 * The stream for all watches. Ids come from the server: a proxy ignores those of the client, and answers in any order. So
 * watches are created one after another, as in Go's client.
 */
class WatchStream {
  readonly #stream: RawStream;

  /** The creation of the first one has been requested. */
  readonly #pending: PendingWatch[] = [];
  readonly #watches = new Map<string, WatchHandler>();
  #stopWaiting = () => {};
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

  create(request: Message, on: WatchHandler): () => void {
    const creation: PendingWatch = { request, on };
    this.#pending.push(creation);
    if (this.#pending.length === 1) this.#ask(creation);
    return () => this.#stop(creation);
  }

  cancel(): void {
    this.#over = true;
    this.#stopWaiting();
    this.#stream.cancel();
  }

  /** Ends all watches. */
  end(failure: CallFailure): void {
    this.#end(failure);
    this.#stream.cancel();
  }

  #ask({ request }: PendingWatch): void {
    const unanswered = () =>
      this.end(new CallFailure(STATUS.unavailable, "no answer to the creation of a watch"));
    this.#stopWaiting = after(LONGEST_CREATION, unanswered, { idle: true });
    this.#stream.write({ create_request: request });
  }

  #stop(creation: PendingWatch): void {
    if (this.#over || creation.isStopped) return;
    creation.isStopped = true;
    const { id } = creation;
    if (id !== undefined && this.#watches.delete(id)) this.#cancel(id);
    const at = this.#pending.indexOf(creation);
    if (at > 0) this.#pending.splice(at, 1);
  }

  #cancel(watch_id: string): void {
    this.#stream.write({ cancel_request: { watch_id } });
  }

  #take({ header, watch_id, created, canceled, cancel_reason, events }: Message): void {
    if (this.#over) return;
    const id = String(watch_id);
    const failure = canceled ? new CallFailure(STATUS.cancelled, String(cancel_reason)) : undefined;
    // The token is stale, or may not read the key: the stream was opened with that token.
    if (created && failure) this.end(failure);
    else if (created) this.#created(id, header);
    const watch = this.#watches.get(id);
    // A stopped watch still gets its last events, and the answer to its cancellation.
    if (!watch) return;
    if ((events as readonly unknown[]).length > 0) watch.events(events);
    if (!failure) return;
    this.#watches.delete(id);
    watch.ended(failure);
  }

  #created(id: string, header: unknown): void {
    this.#stopWaiting();
    const creation = this.#pending.shift();
    const [next] = this.#pending;
    if (next) this.#ask(next);
    if (!creation || creation.isStopped) {
      this.#cancel(id);
      return;
    }
    creation.id = id;
    this.#watches.set(id, creation.on);
    creation.on.created(header);
  }

  #end(failure?: CallFailure): void {
    if (this.#over) return;
    this.#over = true;
    this.#stopWaiting();
    const waiting = this.#pending.filter(({ isStopped }) => !isStopped).map(({ on }) => on);
    const all = [...this.#watches.values(), ...waiting];
    this.#watches.clear();
    for (const { ended } of all) ended(failure);
  }
}

/** The longest time for the creation of a watch. */
const LONGEST_CREATION: Millis = 5_000;

/** The texts of gRPC's failures before a request was sent; they have no codes of their own. */
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
  // Only the text of a failed connection tells that a certificate, ours or theirs, is not accepted.
  const isUntrusted = unsent && /certificate/i.test(details);
  const status = isUntrusted ? STATUS.unauthenticated : code;
  return new CallFailure(status, details || message, { unsent, cause: error });
}
