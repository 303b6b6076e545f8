import { deadline, follow, noAnswer, race } from "../../../lock/abort.ts";
import type { Millis } from "../../../lock/time.ts";
import type { EtcdOptions } from "./etcd.ts";
import { abortFailure, CallFailure, isStaleToken } from "./failure.ts";
import type { Transport } from "./transport.ts";

interface LoginOptions extends EtcdOptions {
  readonly timeout: Millis;
  readonly closing: AbortSignal;
}

/** The token of the user, requested on first use, once for all callers. */
export class Login {
  readonly #transport: Transport;
  readonly #options: LoginOptions;
  readonly #tokens: Map<string, string>;

  /** The key of the token in the Map. */
  readonly #tokenKey: string;
  #asked: Promise<string> | undefined;

  constructor(transport: Transport, options: LoginOptions) {
    const { endpoints, user, password, tokens = new Map() } = options;
    this.#transport = transport;
    this.#options = options;
    this.#tokens = tokens;
    this.#tokenKey = JSON.stringify([endpoints, user, password]);
  }

  /** Resolves to the token, or to undefined without a user. When it rejects, the call was not sent. */
  async token(endpoint: string, signal: AbortSignal): Promise<string | undefined> {
    if (this.#options.user === undefined) return undefined;
    const known = this.#tokens.get(this.#tokenKey);
    if (known !== undefined) return known;
    this.#asked ??= this.#ask(endpoint);
    try {
      return await race(this.#asked, signal);
    } catch (error) {
      throw signal.aborted ? abortFailure(signal, true) : error;
    }
  }

  /** Returns whether a call failed because its token is stale. The next call logs in again then. */
  forget(token: string | undefined, failure: unknown): boolean {
    if (!(failure instanceof CallFailure && isStaleToken(failure))) return false;
    // Another call may have replaced the token already.
    if (token === this.#tokens.get(this.#tokenKey)) this.#tokens.delete(this.#tokenKey);
    return true;
  }

  async #ask(endpoint: string): Promise<string> {
    const { user: name, password = "", timeout, closing } = this.#options;
    const limit = deadline(timeout, noAnswer);
    const scope = follow(limit.signal, closing);
    try {
      const options = { endpoint, token: undefined, signal: scope.signal };
      const answer = await this.#transport.authenticate({ name, password }, options);
      const token = String(answer.token);
      this.#tokens.set(this.#tokenKey, token);
      return token;
    } catch (error) {
      if (!(error instanceof CallFailure)) throw error;
      throw new CallFailure(error.code, error.message, { unsent: true, cause: error.cause });
    } finally {
      this.#asked = undefined;
      scope[Symbol.dispose]();
      limit[Symbol.dispose]();
    }
  }
}
