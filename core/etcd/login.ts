import { deadline, follow, noAnswer, race } from "../lock/abort.ts";
import type { Millis } from "../lock/time.ts";
import { abandoned, CallFailure, isStaleToken } from "./failure.ts";
import type { Transport } from "./transport.ts";

interface LoginOptions {
  readonly user?: string;
  readonly password?: string;
  readonly timeout: Millis;
  readonly closing: AbortSignal;
}

/** The user's token: asked for when it is first needed, once for all who need it. */
export class Login {
  readonly #transport: Transport;
  readonly #options: LoginOptions;
  #asked: Promise<string> | undefined;
  #token: string | undefined;

  constructor(transport: Transport, options: LoginOptions) {
    this.#transport = transport;
    this.#options = options;
  }

  /** The token, or undefined where there is no user. Whatever it was for has not been sent when it fails. */
  async token(endpoint: string, signal: AbortSignal): Promise<string | undefined> {
    if (this.#options.user === undefined) return undefined;
    this.#asked ??= this.#ask(endpoint);
    try {
      return await race(this.#asked, signal);
    } catch (error) {
      throw signal.aborted ? abandoned(signal, true) : error;
    }
  }

  /** Whether something failed because its token is no longer good. Then there will be another one. */
  forget(token: string | undefined, failure: unknown): boolean {
    if (!(failure instanceof CallFailure && isStaleToken(failure))) return false;
    // Another call may have found out before.
    if (token === this.#token) {
      this.#token = undefined;
      this.#asked = undefined;
    }
    return true;
  }

  async #ask(endpoint: string): Promise<string> {
    const { user: name, password = "", timeout, closing } = this.#options;
    const limit = deadline(timeout, noAnswer);
    const scope = follow(limit.signal, closing);
    try {
      const way = { endpoint, token: undefined, signal: scope.signal };
      const answer = await this.#transport.authenticate({ name, password }, way);
      this.#token = String(answer.token);
      return this.#token;
    } catch (error) {
      this.#asked = undefined;
      if (!(error instanceof CallFailure)) throw error;
      throw new CallFailure(error.code, error.message, { unsent: true, cause: error.cause });
    } finally {
      scope[Symbol.dispose]();
      limit[Symbol.dispose]();
    }
  }
}
