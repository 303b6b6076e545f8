import type { Lease } from "./etcd.ts";
import type { Bytes, Message, MethodName } from "./wire.ts";

/** How requests get to one endpoint. Nothing is sent twice here, and every failure is a CallFailure. */
export interface Transport {
  readonly bytes: Bytes;

  /** One request and its answer; given up when the signal aborts. */
  call(name: MethodName, message: Message, way: Way): Promise<Message>;

  /** What `Auth.Authenticate` answers. */
  authenticate(message: Message, way: Way): Promise<Message>;

  /** The answer to one keepalive of this lease: without TTL when there is no such lease. */
  keepAlive(lease: Lease, way: Way): Promise<Message>;

  /** A watch for as long as its connection lasts, or until the returned function is called. */
  watch(create: Message, way: Omit<Way, "signal">, on: WatchEvents): () => void;

  close(): void;
}

export interface Way {
  readonly endpoint: string;
  readonly token: string | undefined;
  readonly signal: AbortSignal;
}

export interface WatchEvents {
  /** With a message of etcd's type ResponseHeader. */
  created(header: unknown): void;

  /** Messages of etcd's type Event. */
  events(events: unknown): void;

  /** It is over, and not because it was asked to be. */
  ended(failure: unknown): void;
}
