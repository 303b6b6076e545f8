import type { LeaseId } from "./etcd.ts";
import type { BytesFormat, Message, MethodName } from "./wire.ts";

/** Sends requests to one endpoint. A transport never repeats a request, and every failure is a CallFailure. */
export interface Transport {
  readonly bytes: BytesFormat;

  /** Sends one request and resolves to its answer. Gives up when the signal aborts. */
  call(name: MethodName, message: Message, options: CallOptions): Promise<Message>;

  /** Sends `Auth.Authenticate`. */
  authenticate(message: Message, options: CallOptions): Promise<Message>;

  /** Sends one keepalive. The answer has no TTL when the lease does not exist. */
  keepAlive(lease: LeaseId, options: CallOptions): Promise<Message>;

  /** Creates a watch, until its connection ends or the returned function is called. */
  watch(create: Message, options: Omit<CallOptions, "signal">, on: WatchHandler): () => void;

  /** Ends the watches and keepalives to an endpoint, and sends later requests over a new connection. */
  reconnect(endpoint: string): void;

  close(): void;
}

export interface CallOptions {
  readonly endpoint: string;
  readonly token: string | undefined;
  readonly signal: AbortSignal;
}

export interface WatchHandler {
  /** Called with a message of etcd's type ResponseHeader. */
  created(header: unknown): void;

  /** Called with messages of etcd's type Event. */
  events(events: unknown): void;

  /** Called when the watch has ended without having been stopped. Without a failure, it was silent for long. */
  ended(failure: unknown): void;
}
