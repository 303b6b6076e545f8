import { connect, type Socket } from "node:net";
import { type Instant, instant, type Millis } from "../lock/time.ts";
import { Reader, Writer } from "./jute.ts";
import { XIDS } from "./requests.ts";
import type { Path, Zxid } from "./zookeeper.ts";

/** What a session and a server tell each other first. */
export interface Handshake {
  /** 0 for a new session. */
  readonly session: bigint;
  readonly password: Uint8Array;
  readonly timeout: Millis;
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
  answered(answer: Answer): void;

  /** Called once, whichever end has ended it. */
  ended(error: Error): void;
}

/** As many bytes as a message can have; anything else is no message. */
const LONGEST_MESSAGE = 2 ** 26;

/** One connection to one server, over which a session talks until it breaks. */
export class Connection {
  readonly sentAt: Instant;
  readonly #socket: Socket;
  readonly #events: ConnectionEvents;
  readonly #shaken = Promise.withResolvers<Handshake>();
  #received: Buffer = Buffer.alloc(0);
  #isShaken = false;
  #isCorked = false;
  #lastZxid: Zxid;
  #lastXid = 0;

  constructor(server: string, handshake: Handshake & { lastZxid: Zxid }, events: ConnectionEvents) {
    const { hostname, port } = new URL(`tcp://${server}`);
    this.#events = events;
    this.#lastZxid = handshake.lastZxid;
    this.#shaken.promise.catch(() => {});
    const host = hostname.replace(/^\[|\]$/g, "");
    let problem = new Error("the connection has ended");
    this.#socket = connect({ host, port: Number(port || 2_181), noDelay: true })
      .on("data", (data) => this.#take(data))
      .on("error", (error) => {
        problem = error;
      })
      .on("close", () => {
        this.#shaken.reject(problem);
        events.ended(problem);
      });
    this.sentAt = instant();
    const { session, password, timeout, lastZxid } = handshake;
    const hello = new Writer().int(0).long(lastZxid).int(timeout).long(session).bytes(password);
    this.#socket.write(hello.bool(false).framed());
  }

  /** What the server has granted: a timeout of 0 says that there is no such session. Rejects with why it ended. */
  get shaken(): Promise<Handshake> {
    return this.#shaken.promise;
  }

  /** The latest change that this session may have seen: no server that lacks it will do. */
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
        if (this.#isShaken) this.#dispatch(new Reader(message));
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
    this.#isShaken = true;
    this.#shaken.resolve({ session, password, timeout });
  }

  #dispatch(answer: Reader): void {
    const xid = answer.int();
    const zxid = answer.long();
    const code = answer.int();
    if (xid === XIDS.watch) {
      answer.int();
      answer.int();
      return this.#events.changed(answer.text());
    }
    if (zxid > this.#lastZxid) this.#lastZxid = zxid;
    // A user who is not accepted finds that out with the first request.
    if (xid !== XIDS.auth) this.#events.answered({ code, body: answer });
  }
}
