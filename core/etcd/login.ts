import { deadline, follow, noAnswer, race } from "../lock/abort.ts";
import type { Millis } from "../lock/time.ts";
import type { EtcdOptions } from "./etcd.ts";
import { abandoned, CallFailure, isStaleToken } from "./failure.ts";
import type { Transport } from "./transport.ts";

interface LoginOptions extends EtcdOptions {
  readonly timeout: Millis;
  readonly closing: AbortSignal;
}

/** The user's token: asked for when it is first needed, once for all who need it. */
export class Login {
  readonly #transport: Transport;
  readonly #options: LoginOptions;
  readonly #tokens: Map<string, string>;

  /** What the token is kept under. */
  readonly #who: string;
  #asked: Promise<string> | undefined;

  constructor(transport: Transport, options: LoginOptions) {
    const { endpoints, user, password, tokens = new Map() } = options;
    this.#transport = transport;
    this.#options = options;
    this.#tokens = tokens;
    this.#who = JSON.stringify([endpoints, user, password]);
  }

  /** The token, or undefined where there is no user. Whatever it was for has not been sent when it fails. */
  async token(endpoint: string, signal: AbortSignal): Promise<string | undefined> {
    if (this.#options.user === undefined) return undefined;
    const known = this.#tokens.get(this.#who);
    if (known !== undefined) return known;
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
    if (token === this.#tokens.get(this.#who)) this.#tokens.delete(this.#who);
    return true;
  }

  async #ask(endpoint: string): Promise<string> {
    const { user: name, password = "", timeout, closing } = this.#options;
    const limit = deadline(timeout, noAnswer);
    const scope = follow(limit.signal, closing);
    try {
      const way = { endpoint, token: undefined, signal: scope.signal };
      const answer = await this.#transport.authenticate({ name, password }, way);
      const token = String(answer.token);
      this.#tokens.set(this.#who, token);
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
