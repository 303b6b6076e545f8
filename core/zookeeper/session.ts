import { deadline, noAnswer, race, sleep } from "../lock/abort.ts";
import { pause } from "../lock/answers.ts";
import { SessionExpiredError, StoreUnavailableError } from "../lock/errors.ts";
import type { Grant } from "../lock/life.ts";
import { elapsedSince, type Millis } from "../lock/time.ts";
import { Asking } from "./asking.ts";
import { type Answer, Connection, type ConnectionEvents, type Servers } from "./connection.ts";
import { CODES } from "./failure.ts";
import { Pulse } from "./pulse.ts";
import {
  type Access,
  authPacket,
  childrenRequest,
  closeRequest,
  createRequest,
  multiRequest,
  type Request,
  readRequest,
  removeRequest,
  syncRequest,
  writeRequest,
} from "./requests.ts";
import { Validity } from "./validity.ts";
import { Watches } from "./watches.ts";
import type {
  Created,
  NewNode,
  Node,
  Op,
  Path,
  Read,
  Session,
  Stat,
  Watch,
  Write,
  Zxid,
} from "./zookeeper.ts";

/** How long one tries to open a session, or to close it. */
const PATIENCE: Millis = 5_000;

/** A session over one connection after another. */
export class LiveSession implements Session {
  readonly #servers: Servers;
  readonly #access: Access;
  readonly #ended = new AbortController();
  readonly #watches = new Watches();
  readonly #asking: Asking;
  readonly #validity: Validity;
  #id = 0n;
  #password: Uint8Array = new Uint8Array(16);
  #lastZxid: Zxid = 0n;
  #connection: Connection | undefined;
  #pulse: Pulse | undefined;
  #isResting = false;
  #connecting: Promise<void> | undefined;
  #closing: Promise<void> | undefined;
  readonly #events: ConnectionEvents = {
    changed: (path) => this.#watches.changed(path),
    answered: (connection, answer) => this.#take(connection, answer),
    ended: (connection, error) => this.#lose(connection, error),
  };

  private constructor(servers: Servers, ttl: Millis) {
    this.#servers = servers;
    this.#access = servers.login ? "creator" : "anyone";
    this.#validity = new Validity(ttl, () => this.#end(new SessionExpiredError(this.id)));
    // A connection that has been silent for so long is no good to others either.
    this.#asking = new Asking(servers.address, (sentAt) => {
      if (elapsedSince(sentAt) > this.ttl / 5) this.#lose(this.#connection, noAnswer());
    });
  }

  static async open(servers: Servers, ttl: Millis, signal?: AbortSignal): Promise<LiveSession> {
    const session = new LiveSession(servers, ttl);
    const limit = deadline(PATIENCE, noAnswer, signal);
    try {
      await session.#connect(limit.signal);
      return session;
    } catch (error) {
      session.#end(new SessionExpiredError(servers.address, "was not opened"));
      signal?.throwIfAborted();
      throw new StoreUnavailableError(servers.address, "no server lets us in", error);
    } finally {
      limit[Symbol.dispose]();
    }
  }

  get id(): string {
    return `0x${BigInt.asUintN(64, this.#id).toString(16)}`;
  }

  get owner(): bigint {
    return this.#id;
  }

  get address(): string {
    return this.#servers.address;
  }

  get ttl(): Millis {
    return this.granted.ttl;
  }

  get signal(): AbortSignal {
    return this.#ended.signal;
  }

  get granted(): Grant {
    return this.#validity.grant;
  }

  remaining(): Millis {
    return this.signal.aborted ? 0 : this.#validity.remaining();
  }

  async renew(signal: AbortSignal): Promise<Grant | undefined> {
    if (this.#isResting) return this.reattach(signal);
    // Between heartbeats that are answered there is half of it left, at the least.
    while (!this.signal.aborted && this.remaining() < this.ttl / 3) {
      await race(this.#validity.extended, signal);
    }
    return this.signal.aborted ? undefined : this.granted;
  }

  async reattach(signal: AbortSignal): Promise<Grant | undefined> {
    this.#lose(this.#connection, new Error("the session moves to a new connection"));
    await race(this.#connectSoon(), signal);
    return this.signal.aborted ? undefined : this.granted;
  }

  rest(): void {
    this.#isResting = true;
    this.#pulse?.stop();
  }

  create(node: NewNode, signal?: AbortSignal): Promise<Created> {
    return this.#ask(createRequest(node, this.#access), signal);
  }

  remove(path: Path, signal?: AbortSignal): Promise<void> {
    return this.#ask(removeRequest(path), signal);
  }

  write(path: Path, data: string, { version, signal }: Write = {}): Promise<Stat> {
    return this.#ask(writeRequest(path, data, version), signal);
  }

  read(path: Path, options: Read = {}): Promise<Node | undefined> {
    return this.#look(readRequest(path, options.watch !== undefined), path, options);
  }

  children(path: Path, options: Read = {}): Promise<readonly string[] | undefined> {
    return this.#look(childrenRequest(path, options.watch !== undefined), path, options);
  }

  sync(signal?: AbortSignal): Promise<void> {
    return this.#ask(syncRequest(), signal);
  }

  multi(ops: readonly Op[], signal?: AbortSignal): Promise<readonly (Path | undefined)[]> {
    return this.#ask(multiRequest(ops, this.#access), signal);
  }

  unwatch(path: Path, watch: Watch): void {
    this.#watches.remove(path, watch);
  }

  close(reason: Error = new SessionExpiredError(this.id, "was closed")): Promise<void> {
    this.#closing ??= this.#close(reason);
    return this.#closing;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  async #close(reason: Error): Promise<void> {
    this.#pulse?.stop();
    const limit = deadline(Math.min(PATIENCE, Math.max(0, this.remaining())), noAnswer);
    await this.#ask(closeRequest(), limit.signal).catch(() => {});
    limit[Symbol.dispose]();
    this.#end(reason);
  }

  async #ask<T>(
    request: Request<T>,
    signal?: AbortSignal,
    answered?: (answer: T) => void,
  ): Promise<T> {
    signal?.throwIfAborted();
    this.signal.throwIfAborted();
    const answer = this.#asking.ask(request, signal, answered);
    if (this.#connection) this.#asking.flush(this.#connection);
    else void this.#connectSoon();
    return answer;
  }

  #look<T>(request: Request<T>, path: Path, { watch, signal }: Read): Promise<T> {
    // Of a node that is not there, no watch is set.
    return this.#ask(request, signal, (answer) => {
      if (watch && answer !== undefined) this.#watches.add(path, watch);
    });
  }

  #take(connection: Connection, answer: Answer): void {
    const code = this.#asking.take(answer);
    if (code === CODES.sessionExpired) this.#end(new SessionExpiredError(this.id));
    if (code === CODES.sessionMoved) this.#lose(connection, new Error("the session moved"));
  }

  /** Until a connection stands, or the session has ended. */
  #connectSoon(): Promise<void> {
    this.#connecting ??= this.#connect(this.signal)
      .catch(() => {})
      .finally(() => {
        this.#connecting = undefined;
      });
    return this.#connecting;
  }

  async #connect(signal: AbortSignal): Promise<void> {
    let problem: unknown;
    for (let attempt = 1; ; attempt += 1) {
      if (signal.aborted) throw problem ?? signal.reason;
      try {
        return await this.#attach(signal);
      } catch (error) {
        problem = error;
        const isRound = attempt % this.#servers.count === 0;
        const patience = pause(attempt / this.#servers.count);
        if (isRound) await sleep(patience, signal).catch(() => {});
      }
    }
  }

  /** One attempt at one server. */
  async #attach(signal: AbortSignal): Promise<void> {
    const hello = {
      session: this.#id,
      password: this.#password,
      timeout: this.ttl,
      lastZxid: this.#lastZxid,
    };
    // The others have to get their turn before the session ends.
    const share = this.ttl / (2 * this.#servers.count);
    const { connection, welcome } = await Connection.open(this.#servers.next(), {
      hello,
      events: this.#events,
      span: Math.min(Math.max(share, 200), 2_000),
      signal,
    });
    const { session, password, timeout } = welcome;
    if (timeout <= 0) this.#end(new SessionExpiredError(this.id));
    if (this.signal.aborted) return connection.destroy();
    this.#id = session;
    this.#password = password;
    this.#stand(connection, timeout);
  }

  #stand(connection: Connection, ttl: Millis): void {
    const { login } = this.#servers;
    this.#connection = connection;
    this.#validity.extend({ ttl, sentAt: connection.sentAt });
    if (login) connection.send(authPacket(login.user, login.password));
    this.#asking.flush(connection);
    if (this.#isResting) return;
    this.#pulse = new Pulse(connection.sentAt, {
      ttl,
      beat: () => this.sync(),
      proven: (sentAt) => this.#validity.extend({ ttl, sentAt }),
      missed: () => this.#lose(connection, noAnswer()),
    });
  }

  #lose(connection: Connection | undefined, error: Error): void {
    if (!connection || connection !== this.#connection) return;
    this.#connection = undefined;
    this.#lastZxid = connection.lastZxid;
    this.#pulse?.stop();
    connection.destroy();
    this.#asking.lose(error);
    this.#watches.lose();
    const isNeeded = !this.#isResting || this.#asking.isWaiting;
    if (isNeeded && !this.signal.aborted) void this.#connectSoon();
  }

  #end(reason: Error): void {
    if (this.signal.aborted) return;
    this.#ended.abort(reason);
    this.#validity.stop();
    this.#lose(this.#connection, reason);
    this.#asking.end(reason);
    this.#watches.lose();
  }
}
