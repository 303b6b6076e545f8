import { connect, type Socket } from "node:net";
import { noAnswer } from "../lock/abort.ts";
import { after, type Instant, instant, type Millis } from "../lock/time.ts";
import { Reader, Writer } from "./jute.ts";
import { XIDS } from "./requests.ts";
import type { Path, Zxid } from "./zookeeper.ts";

/** Where sessions connect to, in turn, and as whom. */
export interface Servers {
  readonly address: string;
  readonly login: { readonly user: string; readonly password: string } | undefined;

  /** host:port of the next one. */
  next(): string;
  readonly count: number;
}

/** What a server tells a session first. */
export interface Welcome {
  readonly session: bigint;
  readonly password: Uint8Array;

  /** 0: there is no such session. */
  readonly timeout: Millis;
}

/** What a session tells a server first. */
export interface Hello extends Welcome {
  /** The latest change that it may have seen: no server that lacks it will do. */
  readonly lastZxid: Zxid;
}

/** An answer's head. */
export interface Answer {
  readonly code: number;
  readonly body: Reader;
}

export interface ConnectionEvents {
  /** Something has happened to a node that is watched. */
  changed(path: Path): void;

  /** Answers to what was sent come in the order in which it was sent. */
  answered(connection: Connection, answer: Answer): void;

  /** Called once, whichever end has ended it. */
  ended(connection: Connection, error: Error): void;
}

interface Opening {
  readonly hello: Hello;
  readonly events: ConnectionEvents;
  readonly span: Millis;
  readonly signal: AbortSignal;
}

/** As many bytes as a message can have; anything else is no message. */
const LONGEST_MESSAGE = 2 ** 26;

/** One connection to one server, over which a session talks until it breaks. */
export class Connection {
  readonly sentAt: Instant;
  readonly #socket: Socket;
  readonly #events: ConnectionEvents;
  readonly #welcome = Promise.withResolvers<Welcome>();
  #received: Buffer = Buffer.alloc(0);
  #isWelcome = false;
  #isCorked = false;
  #lastZxid: Zxid;
  #lastXid = 0;

  private constructor(server: string, hello: Hello, events: ConnectionEvents) {
    const { hostname, port } = new URL(`tcp://${server}`);
    this.#events = events;
    this.#lastZxid = hello.lastZxid;
    const host = hostname.replace(/^\[|\]$/g, "");
    let problem = new Error("the connection has ended");
    this.#socket = connect({ host, port: Number(port || 2_181), noDelay: true })
      .on("data", (data) => this.#take(data))
      .on("error", (error) => {
        problem = error;
      })
      .on("close", () => {
        this.#welcome.reject(problem);
        events.ended(this, problem);
      });
    this.sentAt = instant();
    const { session, password, timeout, lastZxid } = hello;
    const body = new Writer().int(0).long(lastZxid).int(timeout).long(session).bytes(password);
    this.#socket.write(body.bool(false).framed());
  }

  /** Rejects with why there is none, after `span` at the latest. */
  static async open(
    server: string,
    { hello, events, span, signal }: Opening,
  ): Promise<{ readonly connection: Connection; readonly welcome: Welcome }> {
    const connection = new Connection(server, hello, events);
    const giveUp = () => connection.destroy(noAnswer());
    const cancel = after(span, giveUp);
    signal.addEventListener("abort", giveUp, { once: true });
    try {
      return { connection, welcome: await connection.#welcome.promise };
    } finally {
      cancel();
      signal.removeEventListener("abort", giveUp);
    }
  }

  get lastZxid(): Zxid {
    return this.#lastZxid;
  }

  /** Sends what has no number of its own yet. */
  ask(kind: number, body: Writer): void {
    this.#lastXid += 1;
    this.send(new Writer().int(this.#lastXid).int(kind).append(body));
  }

  /** Together with all else that is sent in the same turn. */
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

  destroy(error?: Error): void {
    this.#socket.destroy(error);
  }

  #take(data: Buffer): void {
    this.#received = this.#received.length === 0 ? data : Buffer.concat([this.#received, data]);
    try {
      for (;;) {
        const message = this.#nextMessage();
        if (message === undefined) return;
        if (this.#isWelcome) this.#dispatch(new Reader(message));
        else this.#greet(new Reader(message));
      }
    } catch (error) {
      this.destroy(error as Error);
    }
  }

  #nextMessage(): Buffer | undefined {
    if (this.#received.length < 4) return undefined;
    const length = this.#received.readInt32BE();
    if (length < 0 || length > LONGEST_MESSAGE) throw new RangeError("this is no ZooKeeper server");
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
    this.#isWelcome = true;
    this.#welcome.resolve({ session, password, timeout });
  }

  #dispatch(answer: Reader): void {
    const xid = answer.int();
    const zxid = answer.long();
    const code = answer.int();
    if (zxid > this.#lastZxid) this.#lastZxid = zxid;
    if (xid === XIDS.watch) this.#events.changed(pathOf(answer));
    // A user who is not accepted finds that out with the first request.
    else if (xid !== XIDS.auth) this.#events.answered(this, { code, body: answer });
  }
}

/** After the kind of the change, and the state of the session. */
function pathOf(answer: Reader): Path {
  answer.int();
  answer.int();
  return answer.text();
}
