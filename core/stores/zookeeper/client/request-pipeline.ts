import { UnknownOutcomeError } from "../../../lock/errors.ts";
import { type Instant, instant } from "../../../lock/time.ts";
import type { Answer, Connection } from "./connection.ts";
import { CODES, toError } from "./failure.ts";
import { MultiFailure, type Request } from "./requests.ts";

/** A request that was sent, or waits for a connection. */
interface PendingRequest {
  readonly request: Request<unknown>;
  sentAt: Instant | undefined;

  /** Whether the caller no longer waits for the answer. */
  isAborted: boolean;
  resolve(answer: unknown): void;
  reject(error: unknown): void;
}

/** The requests of a session, in their order, over one connection after another. */
export class RequestPipeline {
  readonly #address: string;
  readonly #onSilence: (sentAt: Instant) => void;

  /** The requests that were sent and not answered, in the order of the answers. */
  #sent: PendingRequest[] = [];

  /** The requests that wait for a connection. */
  #queued: PendingRequest[] = [];

  /** `onSilence` is called when a request is aborted and no answer has come since it was sent. */
  constructor(address: string, onSilence: (sentAt: Instant) => void) {
    this.#address = address;
    this.#onSilence = onSilence;
  }

  get isWaiting(): boolean {
    return this.#queued.length > 0;
  }

  /** Whether a request was sent and not answered. */
  get isPending(): boolean {
    return this.#sent.length > 0;
  }

  /** Sends a request with the next `flush`. `answered` is called as soon as the answer comes. */
  send<T>(
    request: Request<T>,
    signal?: AbortSignal,
    answered: (answer: T) => void = () => {},
  ): Promise<T> {
    return new Promise((resolve, reject) => {
      const settle = () => signal?.removeEventListener("abort", onAbort);
      const pending: PendingRequest = {
        request,
        sentAt: undefined,
        isAborted: false,
        resolve: (answer) => {
          settle();
          if (!pending.isAborted) answered(answer as T);
          resolve(answer as T);
        },
        reject: (error) => {
          settle();
          reject(error);
        },
      };
      const onAbort = () => this.#abort(pending, signal?.reason);
      signal?.addEventListener("abort", onAbort, { once: true });
      this.#queued.push(pending);
    });
  }

  flush(connection: Connection): void {
    for (const pending of this.#queued.splice(0)) {
      pending.sentAt = instant();
      this.#sent.push(pending);
      connection.request(pending.request.kind, pending.request.body);
    }
  }

  /** Takes the next answer. Returns the code of a failure, or 0. Throws for an answer that cannot be decoded. */
  receive({ code, body }: Answer): number {
    const pending = this.#sent.shift();
    if (!pending) throw new RangeError("the server sent an answer without a request");
    const { decode, absent } = pending.request;
    const isAbsent = code === CODES.noNode && absent !== undefined;
    if (code !== 0 && !isAbsent) return this.#fail(pending, code);
    try {
      pending.resolve(isAbsent ? absent() : decode(body));
      return 0;
    } catch (error) {
      if (error instanceof MultiFailure) return this.#fail(pending, error.code);
      pending.reject(this.#unknown(error));
      throw error;
    }
  }

  /** Rejects sent writes after the end of a connection; sent reads are repeated over the next one. */
  disconnect(error: unknown): void {
    const sent = this.#sent;
    this.#sent = [];
    for (const { request, reject } of sent) if (request.writes) reject(this.#unknown(error));
    const again = sent.filter(({ request, isAborted }) => !request.writes && !isAborted);
    this.#queued = [...again, ...this.#queued];
  }

  /** Rejects all requests: no other connection will come. */
  end(reason: unknown): void {
    this.disconnect(reason);
    for (const { reject } of this.#queued.splice(0)) reject(reason);
  }

  /** An aborted request stays in the list of sent ones: its answer still comes. */
  #abort(pending: PendingRequest, reason: unknown): void {
    const { sentAt, request } = pending;
    pending.isAborted = true;
    this.#queued = this.#queued.filter((each) => each !== pending);
    pending.reject(sentAt && request.writes ? this.#unknown(reason) : reason);
    if (sentAt && this.#sent[0] === pending) this.#onSilence(sentAt);
  }

  #fail({ request, reject }: PendingRequest, code: number): number {
    reject(toError(this.#address, code, request.writes));
    return code;
  }

  #unknown(cause: unknown): UnknownOutcomeError {
    return new UnknownOutcomeError(this.#address, "a request was executed", cause);
  }
}
