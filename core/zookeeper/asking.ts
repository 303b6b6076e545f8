import { UnknownOutcomeError } from "../lock/errors.ts";
import { type Instant, instant } from "../lock/time.ts";
import type { Answer, Connection } from "./connection.ts";
import { CODES, toError } from "./failure.ts";
import { MultiFailure, type Request } from "./requests.ts";

/** A request on its way, or waiting for a connection. */
interface Asked {
  readonly request: Request<unknown>;
  sentAt: Instant | undefined;

  /** Nobody waits for the answer any more. */
  isOver: boolean;
  resolve(answer: unknown): void;
  reject(error: unknown): void;
}

/** The requests of a session, in the order in which they are made, over one connection after another. */
export class Asking {
  readonly #address: string;
  readonly #silent: (sentAt: Instant) => void;

  /** Not answered, in the order of the answers. */
  #sent: Asked[] = [];

  /** Not sent: there is no connection. */
  #queued: Asked[] = [];

  /** `silent` is told that a caller gave up while nothing was answered since a request was sent. */
  constructor(address: string, silent: (sentAt: Instant) => void) {
    this.#address = address;
    this.#silent = silent;
  }

  get isWaiting(): boolean {
    return this.#queued.length > 0;
  }

  /** It is sent with the next `flush`. `answered` is called as soon as the answer is there. */
  ask<T>(
    request: Request<T>,
    signal?: AbortSignal,
    answered: (answer: T) => void = () => {},
  ): Promise<T> {
    return new Promise((resolve, reject) => {
      const settle = () => signal?.removeEventListener("abort", onAbort);
      const asked: Asked = {
        request,
        sentAt: undefined,
        isOver: false,
        resolve: (answer) => {
          settle();
          if (!asked.isOver) answered(answer as T);
          resolve(answer as T);
        },
        reject: (error) => {
          settle();
          reject(error);
        },
      };
      const onAbort = () => this.#abandon(asked, signal?.reason);
      signal?.addEventListener("abort", onAbort, { once: true });
      this.#queued.push(asked);
    });
  }

  flush(connection: Connection): void {
    for (const asked of this.#queued.splice(0)) {
      asked.sentAt = instant();
      this.#sent.push(asked);
      connection.ask(asked.request.kind, asked.request.body);
    }
  }

  /** Returns the code of a failure, or 0. Throws when it is not the answer to what was asked. */
  take({ code, body }: Answer): number {
    const asked = this.#sent.shift();
    if (!asked) throw new RangeError("an answer to nothing");
    const { decode, absent } = asked.request;
    const isAbsent = code === CODES.noNode && absent !== undefined;
    if (code !== 0 && !isAbsent) return this.#fail(asked, code);
    try {
      asked.resolve(isAbsent ? absent() : decode(body));
      return 0;
    } catch (error) {
      if (error instanceof MultiFailure) return this.#fail(asked, error.code);
      asked.reject(this.#unknown(error));
      throw error;
    }
  }

  /** The connection is gone. Reads are sent once more, over the next one. */
  lose(error: unknown): void {
    const sent = this.#sent;
    this.#sent = [];
    for (const { request, reject } of sent) if (request.writes) reject(this.#unknown(error));
    const again = sent.filter(({ request, isOver }) => !request.writes && !isOver);
    this.#queued = [...again, ...this.#queued];
  }

  /** There will be no more connections. */
  end(reason: unknown): void {
    this.lose(reason);
    for (const { reject } of this.#queued.splice(0)) reject(reason);
  }

  /** What was sent keeps its place: its answer must not be taken for another's. */
  #abandon(asked: Asked, reason: unknown): void {
    const { sentAt, request } = asked;
    asked.isOver = true;
    this.#queued = this.#queued.filter((each) => each !== asked);
    asked.reject(sentAt && request.writes ? this.#unknown(reason) : reason);
    if (sentAt && this.#sent[0] === asked) this.#silent(sentAt);
  }

  #fail({ request, reject }: Asked, code: number): number {
    reject(toError(this.#address, code, request.writes));
    return code;
  }

  #unknown(cause: unknown): UnknownOutcomeError {
    return new UnknownOutcomeError(this.#address, "a request was carried out", cause);
  }
}
