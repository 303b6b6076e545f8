import { deadline, noAnswer } from "../../../lock/abort.ts";
import { checkFunction, checkOpening, LONGEST_SPAN } from "../../../lock/checks.ts";
import { type Duration, toMillis } from "../../../lock/duration.ts";
import { quote, StoreClosedError } from "../../../lock/errors.ts";
import { checkOptionNames, type OptionNames } from "../../../lock/options.ts";
import type { Millis } from "../../../lock/time.ts";
import { type Fetch, runtimeFetch, whyFetchFailed } from "../../fetch.ts";
import { CommandFailure, toError } from "./failure.ts";
import {
  type Command,
  type CommandOptions,
  type Redis,
  type Reply,
  type Script,
  type ScriptInput,
  toReply,
} from "./redis.ts";
import { runScript } from "./run-script.ts";

export interface RedisRestOptions {
  /** Where the commands are posted to, such as "https://eu1-teapot.upstash.io". */
  readonly url: string;

  /** The token that may write. */
  readonly token: string;

  /** The longest wait for one answer. Default 2 s. */
  readonly timeout?: Duration;

  /** Replaces the runtime's `fetch`. */
  readonly fetch?: Fetch;
}

const CONNECTION_OPTIONS = {
  url: true,
  token: true,
  timeout: true,
  fetch: true,
} satisfies OptionNames<RedisRestOptions>;

/** Makes a client over Upstash's REST API, for runtimes with nothing but `fetch`. No command is sent twice. */
export function redisRestClient(options: RedisRestOptions): Redis {
  checkOpening("openRedisRest", options, '{ url: "https://HOST", token: "…" }');
  checkOptionNames("redis", options, CONNECTION_OPTIONS);
  return new RestClient(options);
}

class RestClient implements Redis {
  readonly address: string;
  readonly #url: string;
  readonly #token: string;
  readonly #timeout: Millis;
  readonly #fetch: Fetch;
  readonly #closing = new AbortController();

  constructor({ url, token, timeout = 2_000, fetch = runtimeFetch }: RedisRestOptions) {
    const { href, origin } = checkUrl(url);
    checkToken(token);
    this.address = `redis at ${origin}`;
    this.#url = href;
    this.#token = token;
    this.#timeout = toMillis("timeout", timeout, 1, LONGEST_SPAN);
    checkFunction("fetch", fetch);
    this.#fetch = fetch;
  }

  async run(script: Script, input: ScriptInput): Promise<Reply> {
    const post = (command: Command) => this.#post(command, input.signal);
    return await this.#orError(runScript(post, script, input), script);
  }

  call(command: Command, { signal, reads = false }: CommandOptions = {}): Promise<Reply> {
    return this.#orError(this.#post(command, signal), { reads });
  }

  async close(): Promise<void> {
    this.#closing.abort(new StoreClosedError());
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  async #orError<T>(answer: Promise<T>, sent: Parameters<typeof toError>[2]): Promise<T> {
    try {
      return await answer;
    } catch (error) {
      const failure = error as CommandFailure;
      const { aborted, reason } = this.#closing.signal;
      if (aborted && (sent.reads || failure.kind === "unsent")) throw reason;
      throw toError(this.address, failure, sent);
    }
  }

  /** Rejects with a CommandFailure. */
  async #post(command: Command, caller: AbortSignal | undefined): Promise<Reply> {
    using limit = deadline(this.#timeout, noAnswer, caller, this.#closing.signal);
    const { signal } = limit;
    if (signal.aborted) throw new CommandFailure("unsent", "there was no time for a request");
    try {
      const { status, text } = await this.#request(JSON.stringify(command.map(String)), signal);
      return readAnswer(status, text);
    } catch (error) {
      throw toFailure(error, signal);
    }
  }

  async #request(body: string, signal: AbortSignal) {
    const answer = await this.#fetch(this.#url, {
      method: "POST",
      headers: { "Content-Type": "application/json", Authorization: `Bearer ${this.#token}` },
      body,
      // The token is not sent to another address.
      redirect: "manual",
      signal,
    });
    return { status: answer.status, text: await answer.text() };
  }
}

function checkUrl(text: string): URL {
  const url = URL.parse(text);
  const isPlain = url && [url.username, url.password, url.search, url.hash].every((part) => !part);
  if (!isPlain || !/^https?:$/.test(url.protocol)) {
    throw new TypeError(
      'the url of a Redis over HTTP must be like "https://HOST", without user, password and query',
    );
  }
  return url;
}

/** The message does not show the token. */
function checkToken(token: unknown): void {
  if (typeof token !== "string" || !/^[\x21-\x7e]+$/.test(token)) {
    throw new TypeError(
      "the token of a Redis over HTTP must be a text of visible ASCII characters",
    );
  }
}

/** {result} or {error}. An error of Redis comes with status 400. */
function readAnswer(status: number, text: string): Reply {
  const { result, error } = parse(text);
  if (status === 200 && result !== undefined) return toReply(result);
  const answer = `HTTP ${status} ${quote(text.trim())}`;
  if (status === 401 || status === 403) {
    throw new CommandFailure("unusable", `it does not accept the token: ${answer}`);
  }
  // Sent by a proxy, which may have passed the command on.
  if (status < 300 || status >= 500 || status === 408 || status === 429) {
    throw new CommandFailure("unanswered", answer);
  }
  if (typeof error === "string") throw new CommandFailure("answered", error);
  throw new CommandFailure("unusable", `this is not Upstash's REST API: ${answer}`);
}

function parse(text: string): { readonly result?: unknown; readonly error?: unknown } {
  try {
    return Object(JSON.parse(text));
  } catch {
    return {};
  }
}

function toFailure(error: unknown, signal: AbortSignal): CommandFailure {
  if (error instanceof CommandFailure) return error;
  if (signal.aborted) return new CommandFailure("unanswered", noAnswer().message);
  const { message, isUntrusted, isUnsent } = whyFetchFailed(error);
  if (isUntrusted) return new CommandFailure("unusable", message);
  return new CommandFailure(isUnsent ? "unsent" : "unanswered", message);
}
