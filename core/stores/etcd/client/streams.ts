import { after, type Millis } from "../../../lock/time.ts";
import type { LeaseId } from "./etcd.ts";
import { abortFailure, CallFailure, isRefusedWatch, STATUS, watchFailure } from "./failure.ts";
import type { CallOptions, WatchHandler } from "./transport.ts";
import type { Message } from "./wire.ts";

/** A stream of messages in both directions. */
export interface MessageStream {
  write(message: Message): void;
  cancel(): void;
}

export interface StreamHandler {
  received(message: Message): void;

  /** Called when the stream has ended. */
  ended(failure: CallFailure): void;
}

export type StreamName = "keepAlive" | "watch";

export type StreamOptions = Omit<CallOptions, "signal">;

/** Opens a stream of gRPC. */
export type OpenStream = (
  name: StreamName,
  options: StreamOptions,
  on: StreamHandler,
) => MessageStream;

/** One stream to each endpoint for all keepalives, and one for all watches, opened on first use. */
export class SharedStreams {
  readonly #open: OpenStream;
  readonly #keepAlives = new Map<string, KeepAliveStream>();
  readonly #watches = new Map<string, WatchStream>();

  constructor(open: OpenStream) {
    this.#open = open;
  }

  keepAlive(lease: LeaseId, options: CallOptions): Promise<Message> {
    const open = (on: StreamHandler) => this.#open("keepAlive", options, on);
    const stream = opened(this.#keepAlives, options.endpoint, () => new KeepAliveStream(open));
    return stream.ask(String(lease), options.signal);
  }

  watch(create: Message, options: StreamOptions, on: WatchHandler): () => void {
    const open = (handler: StreamHandler) => this.#open("watch", options, handler);
    const stream = opened(this.#watches, options.endpoint, () => new WatchStream(open));
    return stream.create(create, on);
  }

  /** Ends the streams to an endpoint. */
  end(endpoint: string, failure: CallFailure): void {
    this.#keepAlives.get(endpoint)?.end(failure);
    this.#watches.get(endpoint)?.end(failure);
  }

  /** Cancels all streams without a word to the watches. */
  close(): void {
    for (const stream of [...this.#keepAlives.values(), ...this.#watches.values()]) stream.cancel();
  }
}

function opened<T extends { readonly over: boolean }>(
  streams: Map<string, T>,
  endpoint: string,
  open: () => T,
): T {
  const known = streams.get(endpoint);
  if (known && !known.over) return known;
  const stream = open();
  streams.set(endpoint, stream);
  return stream;
}

/** The stream for the keepalives of all leases. */
class KeepAliveStream {
  readonly #stream: MessageStream;

  /** By lease, in the order of the requests. */
  readonly #asked = new Map<string, PendingKeepAlive[]>();
  #over: CallFailure | undefined;

  constructor(open: (on: StreamHandler) => MessageStream) {
    this.#stream = open({
      received: (message) => this.#take(String(message.ID), message),
      ended: (failure) => this.#end(failure),
    });
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
  readonly #stream: MessageStream;

  /** The creation of the first one has been requested. */
  readonly #pending: PendingWatch[] = [];
  readonly #watches = new Map<string, WatchHandler>();
  #stopWaiting = () => {};
  #over = false;

  constructor(open: (on: StreamHandler) => MessageStream) {
    this.#stream = open({
      received: (message) => this.#take(message),
      ended: (failure) => this.#end(failure),
    });
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
    const failure = canceled ? watchFailure(cancel_reason, Boolean(created)) : undefined;
    if (created && failure) {
      this.#refused(failure);
      return;
    }
    if (created) this.#created(id, header);
    const watch = this.#watches.get(id);
    // A stopped watch still gets its last events, and the answer to its cancellation.
    if (!watch) return;
    if ((events as readonly unknown[]).length > 0) watch.events(events);
    if (!failure) return;
    this.#watches.delete(id);
    watch.ended(failure);
  }

  #refused(failure: CallFailure): void {
    // The stream was opened with the stale token.
    if (!isRefusedWatch(failure)) {
      this.end(failure);
      return;
    }
    const creation = this.#answered();
    if (creation && !creation.isStopped) creation.on.ended(failure);
  }

  /** Returns the watch whose creation is answered, and asks for the next one. */
  #answered(): PendingWatch | undefined {
    this.#stopWaiting();
    const creation = this.#pending.shift();
    const [next] = this.#pending;
    if (next) this.#ask(next);
    return creation;
  }

  #created(id: string, header: unknown): void {
    const creation = this.#answered();
    if (!creation || creation.isStopped) {
      this.#cancel(id);
      return;
    }
    creation.id = id;
    this.#watches.set(id, creation.on);
    creation.on.created(header);
  }

  #end(failure: CallFailure): void {
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
