import type {
  ClientHttp2Session,
  ClientHttp2Stream,
  IncomingHttpHeaders,
  IncomingHttpStatusHeader,
} from "node:http2";
import type { SecureContext } from "node:tls";
import { race } from "../../../lock/abort.ts";
import { after, type Millis } from "../../../lock/time.ts";
import { whyFetchFailed } from "../../fetch.ts";
import { abortFailure, CallFailure, STATUS, toForeignFailure } from "./failure.ts";
import { Frames, toFrame } from "./frames.ts";
import type { Rpc } from "./rpcs.ts";
import type { Message } from "./wire.ts";

/** The time between pings: only they detect a connection that was cut silently. Etcd allows one per 5 s. */
const PING_PAUSE: Millis = 6_000;

/** The longest wait for the answer to a ping. */
const LONGEST_PING: Millis = 2_000;

/** The bytes that the server may send ahead, in one stream and in all streams of a connection. */
const WINDOW = 4 * 1_024 * 1_024;

/** A connection has ids for 2^30 streams, and is replaced before they are used up. */
const MOST_STREAMS = 2 ** 29;

/** The codes of HTTP/2 for a stream that the server has not begun to process, and for one that the client gives up. */
const [REFUSED_STREAM, CANCEL] = [7, 8];

interface ConnectionOptions {
  /** http://HOST:PORT or https://HOST:PORT. */
  readonly url: string;
  readonly tls: SecureContext | undefined;

  /** Called when the server wants no more requests on the connection. */
  readonly onGoaway: () => void;
}

/** A request with its answer, or a stream of messages in both directions. */
interface Exchange extends Pick<Rpc, "path" | "decode"> {
  readonly token: string | undefined;
  received(message: Message): void;

  /** Called at the end, with a failure unless the server's status is OK. */
  ended(failure: CallFailure | undefined): void;
}

/** The client's side of an exchange. */
interface Sender {
  send(message: Uint8Array): void;
  sendLast(message: Uint8Array): void;
  cancel(): void;
}

/** A connection of HTTP/2 to one endpoint. It begins to connect at once. */
export class Http2Connection {
  readonly #session: ClientHttp2Session;
  readonly #ready = Promise.withResolvers<void>();
  readonly #pings: NodeJS.Timeout;
  #isReady = false;
  #isRetired = false;

  /** Why the connection has ended. */
  #error: Error | undefined;

  /** The code of the server's GOAWAY, and the last stream that the server has processed, or may still process. */
  #goaway = { code: 0, lastStream: Number.POSITIVE_INFINITY };

  /** The number of streams so far, and of those that have not ended. */
  #begun = 0;
  #open = 0;

  constructor({ url, tls, onGoaway }: ConnectionOptions) {
    // Not an import: users of the gateway need not load the module.
    const { connect } = process.getBuiltinModule("node:http2");
    const settings = { enablePush: false, initialWindowSize: WINDOW };
    const secureContext = tls && { secureContext: tls };
    this.#session = connect(url, { ...secureContext, rejectUnauthorized: true, settings });
    this.#session
      .once("remoteSettings", () => {
        this.#isReady = true;
        this.#session.setLocalWindowSize(WINDOW);
        this.#ready.resolve();
      })
      .on("goaway", (code, lastStream) => {
        this.#goaway = { code, lastStream };
        onGoaway();
      })
      .on("error", (error) => {
        this.#error ??= error;
      })
      .on("close", () => {
        this.#giveUp();
        clearInterval(this.#pings);
      });
    this.#ready.promise.catch(() => {});
    this.#pings = setInterval(() => this.#ping(), PING_PAUSE).unref();
    // Only streams keep the process alive.
    this.#session.unref();
  }

  /** Whether the connection takes no more requests. */
  get isOver(): boolean {
    const { closed, destroyed } = this.#session;
    return this.#isRetired || closed || destroyed || this.#begun >= MOST_STREAMS;
  }

  /** Whether the server has sent its settings. */
  get isReady(): boolean {
    return this.#isReady;
  }

  /** Resolves when the server has sent its settings. When it rejects, no request was sent. */
  async ready(signal: AbortSignal): Promise<void> {
    try {
      await race(this.#ready.promise, signal);
    } catch (error) {
      throw signal.aborted ? abortFailure(signal, true) : error;
    }
  }

  begin({ path, token, decode, received, ended }: Exchange): Sender {
    if (this.isOver) throw this.#lost(this.#error, true);
    const stream = this.#session.request({
      ":method": "POST",
      ":path": path,
      "content-type": "application/grpc",
      te: "trailers",
      // A member without a leader answers at once.
      hasleader: "true",
      ...(token !== undefined && { token }),
    });
    this.#begun += 1;
    this.#open += 1;
    if (this.#open === 1) this.#session.ref();
    const frames = new Frames();
    let first: Headers = {};
    let last: IncomingHttpHeaders = first;
    let error: Error | undefined;
    stream
      .on("response", (headers) => {
        first = headers;
        last = headers;
      })
      .on("trailers", (headers) => {
        last = headers;
      })
      .on("data", (chunk: Buffer) => {
        for (const bytes of frames.take(chunk)) {
          const message = decoded(decode, bytes);
          if (message instanceof Error) stream.destroy(message);
          else received(message);
        }
      })
      .on("error", (reason) => {
        error = reason;
      })
      .on("close", () => {
        this.#open -= 1;
        if (this.#open === 0) this.#rest();
        ended(this.#failureOf(stream, { first, last, error }));
      });
    return {
      send: (message) => stream.write(toFrame(message)),
      sendLast: (message) => stream.end(toFrame(message)),
      cancel: () => stream.close(CANCEL),
    };
  }

  /** Takes no more requests. Those under way may still be answered, and have deadlines of their own. */
  retire(): void {
    this.#isRetired = true;
    this.#giveUp();
    // Not `session.close()`: Node answers the pings of a session that closes, and nothing would detect its dead connection.
    if (this.#open === 0) this.#rest();
  }

  /** No stream is open. */
  #rest(): void {
    if (this.#isRetired) this.destroy();
    else this.#session.unref();
  }

  /** Ends all streams. */
  destroy(error?: Error): void {
    this.#error ??= error;
    this.#giveUp();
    clearInterval(this.#pings);
    // The system may keep the socket of a dead connection for minutes.
    this.#session.unref();
    this.#session.destroy(error);
  }

  /** Fails the requests that wait for the connection. */
  #giveUp(): void {
    this.#ready.reject(this.#lost(this.#error, true));
  }

  #ping(): void {
    if (!this.#isReady) this.destroy(new Error("the server does not answer the connection"));
    // The server takes pings without streams for an attack.
    if (this.#session.destroyed || this.#open === 0) return;
    let isAnswered = false;
    this.#session.ping(() => {
      isAnswered = true;
    });
    const judge = () => {
      if (!isAnswered) this.destroy(new Error("the connection does not answer"));
    };
    // After a pause of the whole process, the answer is read after the timer and before the immediate.
    after(LONGEST_PING, () => setImmediate(judge), { idle: true });
  }

  #failureOf(
    { id, rstCode }: ClientHttp2Stream,
    { first, last, error }: Answer,
  ): CallFailure | undefined {
    const { ":status": http, "content-type": type = "" } = first;
    if (http !== undefined && (http !== 200 || !type.startsWith("application/grpc"))) {
      return toForeignFailure(http, `HTTP ${http} ${type}`.trim(), "gRPC API");
    }
    const status = Number(last["grpc-status"] ?? Number.NaN);
    if (status > 0) return new CallFailure(status, unescaped(String(last["grpc-message"] ?? "")));
    if (status === 0 && !error) return undefined;
    const { code, lastStream } = this.#goaway;
    // After a GOAWAY with an error, Node gives its code to all streams.
    const isRefused = rstCode === REFUSED_STREAM && code === 0;
    return this.#lost(error ?? this.#error, id === undefined || id > lastStream || isRefused);
  }

  #lost(error: Error | undefined, unsent: boolean): CallFailure {
    if (!error) return new CallFailure(STATUS.unavailable, "the connection has ended", { unsent });
    const { message, isUntrusted } = whyFetchFailed(error);
    // After the server's settings, a request may have been processed, whatever the error says.
    return isUntrusted && !this.#isReady
      ? new CallFailure(STATUS.unauthenticated, message, { unsent: true, cause: error })
      : new CallFailure(STATUS.unavailable, message, { unsent, cause: error });
  }
}

type Headers = IncomingHttpHeaders & IncomingHttpStatusHeader;

interface Answer {
  readonly first: Headers;

  /** The trailers, or the headers of an answer without a message. */
  readonly last: IncomingHttpHeaders;
  readonly error: Error | undefined;
}

function decoded(decode: Rpc["decode"], bytes: Uint8Array): Message | Error {
  try {
    return decode(bytes);
  } catch (error) {
    return new Error(`the answer is no message of etcd: ${error}`);
  }
}

/** Decodes the percent signs in a text of gRPC. */
function unescaped(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
