import { deadline, noAnswer, sleep } from "../lock/abort.ts";
import { checkSpan, checkText } from "../lock/checks.ts";
import { StoreClosedError, UnknownOutcomeError } from "../lock/errors.ts";
import { after, type Millis } from "../lock/time.ts";
import {
  type Etcd,
  type EtcdOptions,
  type Get,
  type Keys,
  type Lease,
  NoLeaseError,
  type RangeAnswer,
  type Seconds,
  type Txn,
  type TxnAnswer,
  type Watcher,
} from "./etcd.ts";
import { CallFailure, isNotDone, isPassing, STATUS, toError } from "./failure.ts";
import { Login } from "./login.ts";
import type { Transport, Way } from "./transport.ts";
import { Codec, METHODS, type Message, type MethodName, toRevision } from "./wire.ts";

/** etcd over a transport: in etcd's terms above, in messages below. */
export function etcdOver(transport: Transport, options: EtcdOptions): Etcd {
  const { endpoints, timeout = 5_000 } = options;
  if (endpoints.length === 0) throw new TypeError("etcd needs at least one endpoint");
  for (const endpoint of endpoints) checkText("endpoint", endpoint, 1_000);
  checkSpan("timeout", timeout, 1);
  return new Client(transport, { ...options, timeout });
}

/** How long a broken watch waits before it is made anew: from 50 ms, twice as long each time, up to 1 s. */
function pause(attempt: number): Millis {
  return Math.min(50 * 2 ** attempt, 1_000) * (0.5 + Math.random() / 2);
}

type Send = (way: Way) => Promise<Message>;

class Client implements Etcd {
  readonly address: string;
  readonly #transport: Transport;
  readonly #codec: Codec;
  readonly #options: EtcdOptions & { readonly timeout: Millis };
  readonly #closing = new AbortController();
  readonly #watches = new Map<() => void, Watcher>();
  readonly #login: Login;
  #turn = 0;

  constructor(transport: Transport, options: EtcdOptions & { readonly timeout: Millis }) {
    this.#transport = transport;
    this.#codec = new Codec(transport.bytes);
    this.#options = options;
    this.#login = new Login(transport, { ...options, closing: this.#closing.signal });
    this.address = `etcd at ${options.endpoints.join(", ")}`;
  }

  async txn(txn: Txn, signal?: AbortSignal): Promise<TxnAnswer> {
    const message = this.#codec.txn(txn);
    const call = (way: Way) => this.#transport.call("txn", message, way);
    return this.#codec.toTxnAnswer(await this.#send(call, writes(txn), signal));
  }

  async range(get: Get, signal?: AbortSignal): Promise<RangeAnswer> {
    return this.#codec.toRangeAnswer(await this.#call("range", this.#codec.get(get), signal));
  }

  async grant(lease: Lease, ttl: Seconds, signal?: AbortSignal): Promise<Seconds> {
    const message = { ID: String(lease), TTL: String(ttl) };
    return Number((await this.#call("grant", message, signal)).TTL);
  }

  async revoke(lease: Lease, signal?: AbortSignal): Promise<boolean> {
    const revoke = this.#call("revoke", { ID: String(lease) }, signal);
    return (await unlessNoLease(revoke)) !== undefined;
  }

  async keepAlive(lease: Lease, signal?: AbortSignal): Promise<Seconds | undefined> {
    const keepAlive = (way: Way) => this.#transport.keepAlive(lease, way);
    const answer = await unlessNoLease(this.#send(keepAlive, false, signal));
    // The answer for a lease that is gone leaves the ttl out.
    return Number(answer?.TTL ?? 0) || undefined;
  }

  async timeToLive(lease: Lease, signal?: AbortSignal): Promise<Seconds | undefined> {
    const message = { ID: String(lease) };
    const answer = await unlessNoLease(this.#call("timeToLive", message, signal));
    const left = Number(answer?.TTL ?? 0);
    // For a lease that is gone it says -1; 0 is less than a second.
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
      undo = after(pause(attempt), () => void start(), { idle: true });
      attempt += 1;
    };
    const start = async () => {
      try {
        const way = await this.#way(this.#endpoint, this.#closing.signal);
        if (stopped) return;
        undo = this.#transport.watch(create, way, {
          created: (header) => {
            attempt = 0;
            watcher.ready(toRevision({ header }));
          },
          events: (events) => watcher.changed(this.#codec.toChanges(events)),
          ended: (failure) => {
            this.#login.forget(way.token, failure);
            this.#move(way.endpoint);
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
      // Whoever waits for a change looks once more, and is told.
      watcher.ready(0n);
    }
    this.#transport.close();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  #call(name: MethodName, message: Message, signal: AbortSignal | undefined): Promise<Message> {
    const call = (way: Way) => this.#transport.call(name, message, way);
    return this.#send(call, METHODS[name].writes, signal);
  }

  /**
   * Sends to one endpoint after another until one answers, but a write only as long as it has certainly not
   * been carried out.
   */
  async #send(send: Send, writes: boolean, signal: AbortSignal | undefined): Promise<Message> {
    signal?.throwIfAborted();
    for (let sent = 1; ; sent += 1) {
      this.#closing.signal.throwIfAborted();
      const endpoint = this.#endpoint;
      try {
        return await this.#attempt(send, endpoint, signal);
      } catch (failure) {
        if (!(failure instanceof CallFailure)) throw failure;
        const quit = [signal, this.#closing.signal].find((each) => each?.aborted);
        if (quit) throw this.#givenUp(quit, failure, writes);
        if (isPassing(failure)) this.#move(endpoint);
        const again = isPassing(failure) && (!writes || isNotDone(failure));
        // A read whose connection has ended may be sent once more, even where there is only one endpoint.
        const isCutOff = !writes && failure.code === STATUS.unavailable;
        if (!again || sent >= this.#options.endpoints.length + (isCutOff ? 1 : 0)) {
          throw toError(this.address, failure, writes);
        }
        await sleep(10, signal);
      }
    }
  }

  /** One request, or two if the first one's token was no longer good. */
  async #attempt(send: Send, endpoint: string, signal: AbortSignal | undefined): Promise<Message> {
    const scope = deadline(this.#options.timeout, noAnswer, this.#closing.signal, signal);
    try {
      const way = await this.#way(endpoint, scope.signal);
      return await send(way).catch(async (failure) => {
        if (!this.#login.forget(way.token, failure)) throw failure;
        return send(await this.#way(endpoint, scope.signal));
      });
    } finally {
      scope[Symbol.dispose]();
    }
  }

  async #way(endpoint: string, signal: AbortSignal): Promise<Way> {
    return { endpoint, token: await this.#login.token(endpoint, signal), signal };
  }

  /** The caller has given up on a call, or the client was closed. */
  #givenUp({ reason }: AbortSignal, failure: CallFailure, writes: boolean): unknown {
    return writes && !isNotDone(failure)
      ? new UnknownOutcomeError(this.address, "a request was carried out", reason)
      : reason;
  }

  get #endpoint(): string {
    const { endpoints } = this.#options;
    return endpoints[this.#turn % endpoints.length] as string;
  }

  /** Goes on to the next endpoint, unless another call has done so already. */
  #move(from: string): void {
    if (from === this.#endpoint) this.#turn += 1;
  }
}

/** Whether it may change anything: a transaction that only reads is as harmless as any other read. */
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
