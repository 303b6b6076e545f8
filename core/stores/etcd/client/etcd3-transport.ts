import { importUnbundled } from "../../import-unbundled.js";
import { importError } from "../../peer.ts";
import { etcdOver } from "./client.ts";
import { withPlainEndpoints } from "./endpoints.ts";
import type { Etcd, EtcdOptions, LeaseId } from "./etcd.ts";
import { abortFailure, CallFailure, STATUS } from "./failure.ts";
import {
  type MessageStream,
  SharedStreams,
  type StreamHandler,
  type StreamName,
} from "./streams.ts";
import type { CallOptions, Transport, WatchHandler } from "./transport.ts";
import { METHODS, type Message, type MethodName, plainBytes } from "./wire.ts";

/**
 * Makes a client over the gRPC of the package etcd3, for users of that package.
 *
 * The client uses only the raw clients of the package: the layers above them repeat writes, fail unrelated calls and lose
 * events.
 */
export function etcdClientOver(etcd3: Etcd3, options: EtcdOptions): Etcd {
  const plain = withPlainEndpoints(options);
  return etcdOver(new Etcd3Transport(plain, etcd3), plain);
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
    throw importError("etcd3", error, "a client of etcd3");
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
  // No limit: by default, an answer above 4 MB is discarded although the request was executed.
  "grpc.max_receive_message_length": -1,
};

const STREAMS = {
  keepAlive: { service: "Lease", method: "leaseKeepAlive" },
  watch: { service: "Watch", method: "watch" },
} as const;

class Etcd3Transport implements Transport {
  readonly bytes = plainBytes;
  readonly #etcd3: Etcd3;
  readonly #credentials: unknown;
  readonly #hosts = new Map<string, Host>();
  readonly #streams = new SharedStreams((...args) => this.#stream(...args));
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
    return this.#streams.keepAlive(lease, options);
  }

  watch(create: Message, options: Omit<CallOptions, "signal">, on: WatchHandler): () => void {
    return this.#streams.watch(create, options, on);
  }

  reconnect(endpoint: string): void {
    const failure = new CallFailure(STATUS.unavailable, "the connection does not answer");
    const host = this.#hosts.get(endpoint);
    this.#hosts.delete(endpoint);
    this.#reconnects += 1;
    this.#streams.end(endpoint, failure);
    // Pending calls may still be answered, and have deadlines of their own.
    host?.close();
  }

  close(): void {
    this.#streams.close();
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

  #stream(
    name: StreamName,
    { endpoint, token }: Omit<CallOptions, "signal">,
    { received, ended }: StreamHandler,
  ): MessageStream {
    const { service, method } = STREAMS[name];
    const client = this.#host(endpoint).getServiceClient(service);
    const stream = client[method]?.(...([this.#metadata(token)] as never[])) as RawStream;
    return stream
      .on("data", received)
      .on("error", (error) => ended(toFailure(error)))
      .on("end", () => ended(new CallFailure(STATUS.unavailable, "the stream has ended")));
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
