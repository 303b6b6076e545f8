import { connect, isIP, type Socket } from "node:net";
import { connect as connectTls, type SecureContext } from "node:tls";
import { noAnswer } from "../../../lock/abort.ts";
import { after, type Instant, instant, type Millis } from "../../../lock/time.ts";
import { Reader, Writer } from "./jute.ts";
import { XIDS, xidAfter } from "./requests.ts";
import type { Path, Zxid } from "./zookeeper.ts";

/** The servers, and the credentials of the user. */
export interface Servers {
  readonly address: string;
  readonly login: { readonly user: string; readonly password: string } | undefined;

  /** Undefined without TLS. */
  readonly tls: SecureContext | undefined;

  /** Returns host:port of the next server. */
  next(): string;
  readonly count: number;
}

/** The first message of a server. */
export interface ConnectResponse {
  readonly session: bigint;
  readonly password: Uint8Array;

  /** 0 when the session does not exist. */
  readonly timeout: Millis;
}

/** The first message of a client. */
export interface ConnectRequest extends ConnectResponse {
  /** The latest change that the session may have seen: a server without it refuses the connection. */
  readonly lastZxid: Zxid;
}

/** An answer, after its header. */
export interface Answer {
  readonly code: number;
  readonly body: Reader;
}

export interface ConnectionEvents {
  /** Called when a watched node has changed. */
  changed(path: Path): void;

  /** Called for each answer, in the order of the requests. */
  answered(connection: Connection, answer: Answer): void;

  /** Called with the code of a server that does not accept the user. */
  refused(code: number): void;

  /** Called once, whether the client or the server has ended the connection. */
  ended(connection: Connection, error: Error): void;
}

interface ConnectionOptions {
  readonly request: ConnectRequest;
  readonly tls?: SecureContext | undefined;
  readonly events: ConnectionEvents;
  readonly span: Millis;
  readonly signal: AbortSignal;
}

/** The most bytes of a message. */
const LONGEST_MESSAGE = 2 ** 26;

/** A connection of a session to one server. */
export class Connection {
  readonly sentAt: Instant;
  readonly #socket: Socket;
  readonly #events: ConnectionEvents;
  readonly #response = Promise.withResolvers<ConnectResponse>();
  #received: Buffer = Buffer.alloc(0);
  #chunks = 0;
  #isConnected = false;
  #isCorked = false;
  #lastZxid: Zxid;
  #lastXid = 0;

  private constructor(server: string, { request, tls, events }: ConnectionOptions) {
    this.#events = events;
    this.#lastZxid = request.lastZxid;
    let problem = new Error("the connection has ended");
    this.#socket = dial(server, tls)
      .on("data", (data) => this.#take(data))
      .on("error", (error) => {
        problem = error;
      })
      .on("close", () => {
        this.#response.reject(problem);
        events.ended(this, problem);
      });
    this.sentAt = instant();
    const { session, password, timeout, lastZxid } = request;
    const body = new Writer().int(0).long(lastZxid).int(timeout).long(session).bytes(password);
    // A server with a refused certificate does not get the session's password.
    this.#socket.once(tls ? "secureConnect" : "connect", () => {
      this.#socket.write(body.bool(false).framed());
    });
  }

  /** Connects within `span`, or rejects with the reason. */
  static async open(
    server: string,
    opening: ConnectionOptions,
  ): Promise<{ readonly connection: Connection; readonly response: ConnectResponse }> {
    const { span, signal } = opening;
    const connection = new Connection(server, opening);
    const giveUp = () => connection.destroy(noAnswer());
    const cancel = after(span, giveUp);
    signal.addEventListener("abort", giveUp, { once: true });
    try {
      return { connection, response: await connection.#response.promise };
    } finally {
      cancel();
      signal.removeEventListener("abort", giveUp);
    }
  }

  get lastZxid(): Zxid {
    return this.#lastZxid;
  }

  /** The number of data chunks received so far. */
  get received(): number {
    return this.#chunks;
  }

  /** Sends a request under the next number. */
  request(kind: number, body: Writer): void {
    this.#lastXid = xidAfter(this.#lastXid);
    this.send(new Writer().int(this.#lastXid).int(kind).append(body));
  }

  /** Sends a message, in one write with the others of the same turn of the event loop. */
  send(message: Writer): void {
    if (!this.#isCorked) {
      this.#isCorked = true;
      this.#socket.cork();
      process.nextTick(() => {
        this.#isCorked = false;
        this.#socket.uncork();
      });
    }
    this.#socket.write(message.framed());
  }

  /** Whether the connection keeps the process alive, as a new one does. */
  keepProcessAlive(keeps: boolean): void {
    if (keeps) this.#socket.ref();
    else this.#socket.unref();
  }

  destroy(error?: Error): void {
    this.#socket.destroy(error);
  }

  #take(data: Buffer): void {
    this.#chunks += 1;
    this.#received = this.#received.length === 0 ? data : Buffer.concat([this.#received, data]);
    try {
      for (;;) {
        const message = this.#nextMessage();
        if (message === undefined) return;
        if (this.#isConnected) this.#dispatch(new Reader(message));
        else this.#greet(new Reader(message));
      }
    } catch (error) {
      this.destroy(error as Error);
    }
  }

  #nextMessage(): Buffer | undefined {
    if (this.#received.length < 4) return undefined;
    const length = this.#received.readInt32BE();
    if (length < 0 || length > LONGEST_MESSAGE)
      throw new RangeError("the server is not a ZooKeeper server");
    if (this.#received.length < 4 + length) return undefined;
    const message = this.#received.subarray(4, 4 + length);
    this.#received = this.#received.subarray(4 + length);
    return message;
  }

  #greet(answer: Reader): void {
    answer.int();
    const timeout = answer.int();
    const session = answer.long();
    const password = Buffer.from(answer.bytes());
    this.#isConnected = true;
    this.#response.resolve({ session, password, timeout });
  }

  #dispatch(answer: Reader): void {
    const xid = answer.int();
    const zxid = answer.long();
    const code = answer.int();
    if (zxid > this.#lastZxid) this.#lastZxid = zxid;
    if (xid === XIDS.watch) this.#events.changed(pathOf(answer));
    else if (xid !== XIDS.auth) this.#events.answered(this, { code, body: answer });
    else if (code !== 0) this.#events.refused(code);
  }
}

function dial(server: string, tls: SecureContext | undefined): Socket {
  const { hostname, port } = new URL(`tcp://${server}`);
  const host = hostname.replace(/^\[|\]$/g, "");
  const to = { host, port: Number(port || (tls ? 2_281 : 2_181)), noDelay: true };
  if (!tls) return connect(to);
  const servername = isIP(host) ? "" : host;
  // Overrules the environment, which can switch the check off.
  return connectTls({ ...to, secureContext: tls, servername, rejectUnauthorized: true });
}

/** Whether a certificate, ours or theirs, was refused, by the code of the connection's error. */
export function isUntrusted(error: unknown): boolean {
  return error instanceof Error && "code" in error && /CERT|UNABLE_TO_/.test(String(error.code));
}

/** Reads the path, after the kind of the change and the state of the session. */
function pathOf(answer: Reader): Path {
  answer.int();
  answer.int();
  return answer.text();
}
