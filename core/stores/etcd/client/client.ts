import { deadline, noAnswer } from "../../../lock/abort.ts";
import { LONGEST_SPAN } from "../../../lock/checks.ts";
import { toMillis } from "../../../lock/duration.ts";
import { StoreClosedError, UnknownOutcomeError } from "../../../lock/errors.ts";
import { backoff, retry } from "../../../lock/retry.ts";
import { after, elapsedSince, type Instant, instant, type Millis } from "../../../lock/time.ts";
import {
  type Etcd,
  type EtcdOptions,
  type Get,
  type Keys,
  type LeaseId,
  NoLeaseError,
  type RangeAnswer,
  type Seconds,
  type Txn,
  type TxnAnswer,
  type Watcher,
} from "./etcd.ts";
import { CallFailure, isNotDone, isPassing, isRefusedWatch, STATUS, toError } from "./failure.ts";
import { Login } from "./login.ts";
import type { CallOptions, Transport } from "./transport.ts";
import { METHODS, type Message, MessageCodec, type MethodName, toRevision } from "./wire.ts";

/** Makes a client of a transport: the client uses etcd's terms, the transport carries messages. */
export function etcdOver(transport: Transport, options: EtcdOptions): Etcd {
  const timeout = toMillis("timeout", options.timeout ?? 5_000, 1, LONGEST_SPAN);
  return new Client(transport, { ...options, timeout });
}

/** The pauses before a broken watch is created again. */
const WATCH_PAUSES = { base: 50, factor: 2, max: 1_000 } as const;

/** The pause before a request goes to the next endpoint. */
const ENDPOINT_PAUSE: Millis = 10;

/** How long an endpoint may be silent before its connection counts as dead. */
const SILENCE: Millis = 400;

type Send = (options: CallOptions) => Promise<Message>;

class Client implements Etcd {
  readonly address: string;
  readonly #transport: Transport;
  readonly #codec: MessageCodec;
  readonly #options: Omit<EtcdOptions, "timeout"> & { readonly timeout: Millis };
  readonly #closing = new AbortController();
  readonly #watches = new Map<() => void, Watcher>();
  readonly #login: Login;

  /** The time of the last answer, or of the last reconnect, by endpoint. */
  readonly #lastAnswers = new Map<string, Instant>();
  #next = 0;

  constructor(
    transport: Transport,
    options: Omit<EtcdOptions, "timeout"> & { readonly timeout: Millis },
  ) {
    this.#transport = transport;
    this.#codec = new MessageCodec(transport.bytes);
    this.#options = options;
    this.#login = new Login(transport, { ...options, closing: this.#closing.signal });
    this.address = `etcd at ${options.endpoints.join(", ")}`;
  }

  async txn(txn: Txn, signal?: AbortSignal): Promise<TxnAnswer> {
    const message = this.#codec.txn(txn);
    const call = (options: CallOptions) => this.#transport.call("txn", message, options);
    return this.#codec.toTxnAnswer(await this.#send(call, writes(txn), signal));
  }

  async range(get: Get, signal?: AbortSignal): Promise<RangeAnswer> {
    return this.#codec.toRangeAnswer(await this.#call("range", this.#codec.get(get), signal));
  }

  async grant(lease: LeaseId, ttl: Seconds, signal?: AbortSignal): Promise<Seconds> {
    const message = { ID: String(lease), TTL: String(ttl) };
    return Number((await this.#call("grant", message, signal)).TTL);
  }

  async revoke(lease: LeaseId, signal?: AbortSignal): Promise<boolean> {
    const revoke = this.#call("revoke", { ID: String(lease) }, signal);
    return (await unlessNoLease(revoke)) !== undefined;
  }

  async keepAlive(lease: LeaseId, signal?: AbortSignal): Promise<Seconds | undefined> {
    const keepAlive = (options: CallOptions) => this.#transport.keepAlive(lease, options);
    const answer = await unlessNoLease(this.#send(keepAlive, false, signal));
    // The answer for a missing lease has no ttl.
    return Number(answer?.TTL ?? 0) || undefined;
  }

  async timeToLive(lease: LeaseId, signal?: AbortSignal): Promise<Seconds | undefined> {
    const message = { ID: String(lease) };
    const answer = await unlessNoLease(this.#call("timeToLive", message, signal));
    const left = Number(answer?.TTL ?? 0);
    // The ttl of a missing lease is -1; 0 is less than a second.
    return answer === undefined || left < 0 ? undefined : left;
  }

  watch(keys: Keys, watcher: Watcher): () => void {
    this.#closing.signal.throwIfAborted();
    const create = this.#codec.keys(keys);
    let stopped = false;
    let attempt = 0;
    let undo = () => {};
    const again = () => {
      if (stopped) return;
      undo = after(backoff(attempt, WATCH_PAUSES), () => void start(), { idle: true });
      attempt += 1;
    };
    const start = async () => {
      try {
        const options = await this.#callOptions(this.#endpoint, this.#closing.signal);
        if (stopped) return;
        undo = this.#transport.watch(create, options, {
          created: (header) => {
            attempt = 0;
            watcher.ready(toRevision({ header }));
          },
          events: (events) => watcher.changed(this.#codec.toChanges(events)),
          ended: (failure) => {
            this.#login.forget(options.token, failure);
            // The reader asks for the keys, and gets the refusal.
            if (isRefusedWatch(failure)) watcher.ready(0n);
            else if (failure !== undefined) this.#moveFrom(options.endpoint);
            again();
          },
        });
      } catch {
        again();
      }
    };
    const stop = () => {
      stopped = true;
      undo();
      this.#watches.delete(stop);
    };
    this.#watches.set(stop, watcher);
    void start();
    return stop;
  }

  async close(): Promise<void> {
    if (this.#closing.signal.aborted) return;
    this.#closing.abort(new StoreClosedError());
    for (const [stop, watcher] of [...this.#watches]) {
      stop();
      // A waiter reads once more, and gets the error of the closed client.
      watcher.ready(0n);
    }
    this.#transport.close();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  #call(name: MethodName, message: Message, signal: AbortSignal | undefined): Promise<Message> {
    const call = (options: CallOptions) => this.#transport.call(name, message, options);
    return this.#send(call, METHODS[name].writes, signal);
  }

  /**
   * Sends to one endpoint after another until one answers; repeats a write only if it was certainly not executed.
   */
  async #send(send: Send, writes: boolean, signal: AbortSignal | undefined): Promise<Message> {
    signal?.throwIfAborted();
    let endpoint = this.#endpoint;
    const attempt = () => {
      this.#closing.signal.throwIfAborted();
      endpoint = this.#endpoint;
      return this.#attempt(send, endpoint, signal);
    };
    const pauseAfter = (failure: unknown, count: number) => {
      if (!(failure instanceof CallFailure)) return undefined;
      const aborted = [signal, this.#closing.signal].find((each) => each?.aborted);
      if (aborted) throw this.#abortError(aborted, failure, writes);
      if (isPassing(failure)) this.#moveFrom(endpoint);
      const mayRepeat = isPassing(failure) && (!writes || isNotDone(failure));
      // A read, or an unsent write, whose connection has ended may be sent once more, even where there is only one endpoint.
      const isCutOff = failure.code === STATUS.unavailable && (!writes || failure.unsent);
      const most = this.#options.endpoints.length + (isCutOff ? 1 : 0);
      if (mayRepeat && count + 1 < most) return ENDPOINT_PAUSE;
      throw toError(this.address, failure, writes);
    };
    return retry(attempt, pauseAfter, signal);
  }

  /** Sends one request, or two if the token of the first one was stale. */
  async #attempt(send: Send, endpoint: string, signal: AbortSignal | undefined): Promise<Message> {
    const scope = deadline(this.#options.timeout, noAnswer, this.#closing.signal, signal);
    const startedAt = instant();
    try {
      const options = await this.#callOptions(endpoint, scope.signal);
      const answer = await send(options).catch(async (failure) => {
        if (!this.#login.forget(options.token, failure)) throw failure;
        return send(await this.#callOptions(endpoint, scope.signal));
      });
      this.#lastAnswers.set(endpoint, instant());
      return answer;
    } catch (failure) {
      if (scope.signal.aborted) this.#reconnectIfSilent(endpoint, startedAt);
      throw failure;
    } finally {
      scope[Symbol.dispose]();
    }
  }

  /** Reconnects to an endpoint that has not answered since then: its connection may be dead. */
  #reconnectIfSilent(endpoint: string, since: Instant): void {
    const last = this.#lastAnswers.get(endpoint);
    const hasAnswered = last !== undefined && elapsedSince(last) <= elapsedSince(since);
    if (hasAnswered || elapsedSince(since) < SILENCE || this.#closing.signal.aborted) return;
    this.#lastAnswers.set(endpoint, instant());
    this.#moveFrom(endpoint);
    this.#transport.reconnect(endpoint);
  }

  async #callOptions(endpoint: string, signal: AbortSignal): Promise<CallOptions> {
    return { endpoint, token: await this.#login.token(endpoint, signal), signal };
  }

  /** The error of a call that was aborted, or whose client was closed. */
  #abortError({ reason }: AbortSignal, failure: CallFailure, writes: boolean): unknown {
    return writes && !isNotDone(failure)
      ? new UnknownOutcomeError(this.address, "a request was executed", reason)
      : reason;
  }

  get #endpoint(): string {
    const { endpoints } = this.#options;
    return endpoints[this.#next % endpoints.length] as string;
  }

  /** Moves on to the next endpoint, unless another call has done so already. */
  #moveFrom(from: string): void {
    if (from === this.#endpoint) this.#next += 1;
  }
}

/** Whether a transaction may change anything. A transaction that only reads is repeated like any other read. */
function writes({ do: ops, otherwise = [] }: Txn): boolean {
  return [...ops, ...otherwise].some((op) => (op.op === "txn" ? writes(op.txn) : op.op !== "get"));
}

async function unlessNoLease(answer: Promise<Message>): Promise<Message | undefined> {
  try {
    return await answer;
  } catch (error) {
    if (error instanceof NoLeaseError) return undefined;
    throw error;
  }
}
