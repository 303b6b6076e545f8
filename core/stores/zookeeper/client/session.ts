import { deadline, noAnswer, race, sleep } from "../../../lock/abort.ts";

import {
  SessionExpiredError,
  StoreRefusedError,
  StoreUnavailableError,
} from "../../../lock/errors.ts";
import type { LeaseGrant } from "../../../lock/lease.ts";
import { type Backoff, backoff, retry } from "../../../lock/retry.ts";
import { elapsedSince, type Instant, instant, type Millis } from "../../../lock/time.ts";
import {
  type Answer,
  Connection,
  type ConnectionEvents,
  isUntrusted,
  type Servers,
} from "./connection.ts";
import { CODES, toError } from "./failure.ts";
import { Heartbeat, ServerWatchdog, SessionValidity } from "./liveness.ts";
import { RequestPipeline } from "./request-pipeline.ts";
import {
  type Access,
  authPacket,
  childrenRequest,
  closeRequest,
  createRequest,
  ephemeralsRequest,
  multiRequest,
  type Request,
  readRequest,
  removeRequest,
  syncRequest,
  writeRequest,
} from "./requests.ts";
import type {
  Created,
  MultiOp,
  NewNode,
  Node,
  Path,
  Read,
  Stat,
  Watch,
  Write,
  ZooKeeperSession,
  Zxid,
} from "./zookeeper.ts";

/** The longest time to open a session. */
const OPENING: Millis = 5_000;

/** The longest and the shortest wait for an answer when a session is closed. */
const CLOSING: Millis = 1_500;
const LEAST_CLOSING: Millis = 300;

/** The longest silence of a server while a request is pending. */
const LONGEST_SILENCE: Millis = 2_000;

/** The silence after which an aborted request counts the connection as dead. */
const DOUBTFUL_SILENCE: Millis = 450;

/** A connection that ends sooner may be one of many. */
const BRIEF: Millis = 1_000;
const BRIEF_PAUSES: Backoff = { base: 10, factor: 2, max: 1_000 };

/** A session that moves from one connection to the next. */
export class LiveSession implements ZooKeeperSession {
  readonly #servers: Servers;
  readonly #access: Access;
  readonly #ended = new AbortController();
  readonly #watches = new Watches();
  readonly #onReconnect: (() => Promise<void>)[] = [];
  readonly #pipeline: RequestPipeline;
  readonly #validity: SessionValidity;
  #id = 0n;
  #password: Uint8Array = new Uint8Array(16);
  #lastZxid: Zxid = 0n;
  #connection: Connection | undefined;
  #heartbeat: Heartbeat | undefined;
  #watchdog: ServerWatchdog | undefined;

  /** Since when a request is pending without any answer. */
  #pendingSince: Instant | undefined;
  #isKeepAliveStopped = false;

  /** The number of callers that wait for an answer. */
  #callers = 0;

  /** How many connections in a row were ended within a second, and not by this client. */
  #brief = 0;
  #connecting: Promise<void> | undefined;
  #closing: Promise<void> | undefined;
  readonly #events: ConnectionEvents = {
    changed: (path) => this.#watches.changed(path),
    answered: (connection, answer) => this.#receive(connection, answer),
    ended: (connection, error) => {
      if (connection !== this.#connection) return;
      this.#brief = elapsedSince(connection.sentAt) < BRIEF ? this.#brief + 1 : 0;
      this.#disconnect(connection, error);
    },
    refused: (code) => this.#end(toError(this.address, code, false)),
  };

  private constructor(servers: Servers, ttl: Millis) {
    this.#servers = servers;
    this.#access = servers.login ? "creator" : "anyone";
    this.#validity = new SessionValidity(ttl, () => this.#end(new SessionExpiredError(this.id)));
    // After such a silence, the connection is no good for other requests either.
    this.#pipeline = new RequestPipeline(servers.address, (sentAt) => {
      const span = Math.min(this.ttl / 5, DOUBTFUL_SILENCE);
      if (elapsedSince(sentAt) > span) this.#disconnect(this.#connection, noAnswer());
    });
  }

  static async open(servers: Servers, ttl: Millis, signal?: AbortSignal): Promise<LiveSession> {
    const session = new LiveSession(servers, ttl);
    const limit = deadline(OPENING, noAnswer, signal);
    try {
      await session.#connect(limit.signal);
      return session;
    } catch (error) {
      session.#end(new SessionExpiredError(servers.address, "was not opened"));
      signal?.throwIfAborted();
      const { message } = error as Error;
      if (isUntrusted(error)) {
        throw new StoreRefusedError(
          servers.address,
          `no certificate is accepted: ${message}`,
          error,
        );
      }
      throw new StoreUnavailableError(
        servers.address,
        `no server opens a session: ${message}`,
        error,
      );
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

  get granted(): LeaseGrant {
    return this.#validity.grant;
  }

  remaining(): Millis {
    return this.signal.aborted ? 0 : this.#validity.remaining();
  }

  async renew(signal: AbortSignal): Promise<LeaseGrant | undefined> {
    if (this.#isKeepAliveStopped) return this.restart(signal);
    // Between answered heartbeats, at least half of the ttl is left.
    while (!this.signal.aborted && this.remaining() < this.ttl / 3) {
      await race(this.#validity.extended, signal);
    }
    return this.signal.aborted ? undefined : this.granted;
  }

  async restart(signal: AbortSignal): Promise<LeaseGrant | undefined> {
    this.#brief = 0;
    this.#disconnect(this.#connection, new Error("the session moves to a new connection"));
    await race(this.#connectSoon(), signal);
    return this.signal.aborted ? undefined : this.granted;
  }

  stopKeepAlive(): void {
    this.#isKeepAliveStopped = true;
    this.#heartbeat?.stop();
  }

  create(node: NewNode, signal?: AbortSignal): Promise<Created> {
    return this.#send(createRequest(node, this.#access), signal);
  }

  remove(path: Path, signal?: AbortSignal): Promise<void> {
    return this.#send(removeRequest(path), signal);
  }

  write(path: Path, data: string, { version, signal }: Write = {}): Promise<Stat> {
    return this.#send(writeRequest(path, data, version), signal);
  }

  read(path: Path, options: Read = {}): Promise<Node | undefined> {
    return this.#read(readRequest(path, options.watch !== undefined), path, options);
  }

  children(path: Path, options: Read = {}): Promise<readonly string[] | undefined> {
    return this.#read(childrenRequest(path, options.watch !== undefined), path, options);
  }

  sync(signal?: AbortSignal): Promise<void> {
    return this.#send(syncRequest(), signal);
  }

  multi(ops: readonly MultiOp[], signal?: AbortSignal): Promise<readonly (Path | undefined)[]> {
    return this.#send(multiRequest(ops, this.#access), signal);
  }

  ephemerals(): Promise<readonly Path[]> {
    return this.#send(ephemeralsRequest());
  }

  onReconnect(call: () => Promise<void>): void {
    this.#onReconnect.push(call);
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
    this.#heartbeat?.stop();
    const silent = this.#pendingSince ? elapsedSince(this.#pendingSince) : 0;
    const span = Math.min(Math.max(CLOSING - silent, LEAST_CLOSING), Math.max(0, this.remaining()));
    const limit = deadline(span, noAnswer);
    await this.#send(closeRequest(), limit.signal).catch(() => {});
    limit[Symbol.dispose]();
    this.#end(reason);
  }

  /** Sends a request, and keeps the process alive until it is answered. */
  async #send<T>(
    request: Request<T>,
    signal?: AbortSignal,
    answered?: (answer: T) => void,
  ): Promise<T> {
    this.#callers += 1;
    this.#connection?.keepProcessAlive(true);
    try {
      return await this.#enqueue(request, signal, answered);
    } finally {
      this.#callers -= 1;
      if (this.#callers === 0) this.#connection?.keepProcessAlive(false);
    }
  }

  async #enqueue<T>(
    request: Request<T>,
    signal?: AbortSignal,
    answered?: (answer: T) => void,
  ): Promise<T> {
    signal?.throwIfAborted();
    this.signal.throwIfAborted();
    const answer = this.#pipeline.send(request, signal, answered);
    this.#pendingSince ??= instant();
    if (this.#connection) this.#flush(this.#connection);
    else void this.#connectSoon();
    return answer;
  }

  #read<T>(request: Request<T>, path: Path, { watch, signal }: Read): Promise<T> {
    // A missing node gets no watch.
    return this.#send(request, signal, (answer) => {
      if (watch && answer !== undefined) this.#watches.add(path, watch);
    });
  }

  #flush(connection: Connection): void {
    this.#pipeline.flush(connection);
    this.#watchdog?.start();
  }

  #receive(connection: Connection, answer: Answer): void {
    const code = this.#pipeline.receive(answer);
    this.#pendingSince = this.#pipeline.isPending ? instant() : undefined;
    if (code === CODES.sessionExpired) this.#end(new SessionExpiredError(this.id));
    if (code === CODES.sessionMoved) this.#disconnect(connection, new Error("the session moved"));
  }

  /** Resolves when the session is connected, or has ended. */
  #connectSoon(): Promise<void> {
    this.#connecting ??= this.#reconnect()
      .catch(() => {})
      .finally(() => {
        this.#connecting = undefined;
      });
    return this.#connecting;
  }

  /** Pauses first when connections do not last: a server may accept a session, and close the connection at once. */
  async #reconnect(): Promise<void> {
    if (this.#brief > 1) await sleep(backoff(this.#brief, BRIEF_PAUSES), this.signal);
    await this.#connect(this.signal);
  }

  /** Connects to one server after another, with a pause after each round. Rejects with the last server's own failure. */
  async #connect(signal: AbortSignal): Promise<void> {
    signal.throwIfAborted();
    let failure: unknown;
    const pauseAfter = async (error: unknown, attempt: number) => {
      if (this.signal.aborted) return undefined;
      // That an attempt was cut short tells less than the failure before it.
      if (signal.aborted) throw failure ?? error;
      failure = error;
      const rounds = (attempt + 1) / this.#servers.count;
      if (Number.isInteger(rounds)) {
        if (this.#id === 0n && isUntrusted(error)) return undefined;
        await sleep(backoff(rounds), signal).catch(() => {});
      }
      return signal.aborted ? undefined : 0;
    };
    await retry(() => this.#attach(signal), pauseAfter);
  }

  /** Makes one attempt to connect to one server. */
  async #attach(signal: AbortSignal): Promise<void> {
    const request = {
      session: this.#id,
      password: this.#password,
      timeout: this.ttl,
      lastZxid: this.#lastZxid,
    };
    // Every server gets its turn before the session ends.
    const share = this.ttl / (2 * this.#servers.count);
    const { connection, response } = await Connection.open(this.#servers.next(), {
      request,
      tls: this.#servers.tls,
      events: this.#events,
      span: Math.min(Math.max(share, 200), 2_000),
      signal,
    });
    const { session, password, timeout } = response;
    if (timeout <= 0) this.#end(new SessionExpiredError(this.id));
    if (this.signal.aborted) {
      connection.destroy();
      throw this.signal.reason;
    }
    const isFirst = this.#id === 0n;
    this.#id = session;
    this.#password = password;
    this.#attached(connection, timeout);
    if (!isFirst) for (const call of this.#onReconnect) call().catch(() => {});
  }

  #attached(connection: Connection, ttl: Millis): void {
    const { login } = this.#servers;
    this.#connection = connection;
    this.#validity.extend({ ttl, sentAt: connection.sentAt });
    if (login) connection.send(authPacket(login.user, login.password));
    this.#watchdog = new ServerWatchdog({
      span: Math.min(ttl / 5, LONGEST_SILENCE),
      received: () => connection.received,
      isPending: () => this.#pipeline.isPending,
      timedOut: () => this.#disconnect(connection, noAnswer()),
    });
    this.#flush(connection);
    connection.keepProcessAlive(this.#callers > 0);
    if (this.#isKeepAliveStopped) return;
    this.#heartbeat = new Heartbeat(connection.sentAt, {
      ttl,
      beat: () => this.#enqueue(syncRequest()),
      proven: (sentAt) => this.#validity.extend({ ttl, sentAt }),
      missed: () => this.#disconnect(connection, noAnswer()),
    });
  }

  #disconnect(connection: Connection | undefined, error: Error): void {
    if (!connection || connection !== this.#connection) return;
    this.#connection = undefined;
    this.#lastZxid = connection.lastZxid;
    this.#heartbeat?.stop();
    this.#watchdog?.stop();
    connection.destroy();
    this.#pipeline.disconnect(error);
    this.#watches.callAll();
    const isNeeded = !this.#isKeepAliveStopped || this.#pipeline.isWaiting;
    if (isNeeded && !this.signal.aborted) void this.#connectSoon();
  }

  #end(reason: Error): void {
    if (this.signal.aborted) return;
    this.#ended.abort(reason);
    this.#validity.stop();
    this.#disconnect(this.#connection, reason);
    this.#pipeline.end(reason);
    this.#watches.callAll();
  }
}

/** The watches of a session, each called once. */
class Watches {
  readonly #watches = new Map<Path, Set<Watch>>();

  add(path: Path, watch: Watch): void {
    const watches = this.#watches.get(path) ?? new Set();
    this.#watches.set(path, watches.add(watch));
  }

  remove(path: Path, watch: Watch): void {
    const watches = this.#watches.get(path);
    if (watches?.delete(watch) && watches.size === 0) this.#watches.delete(path);
  }

  changed(path: Path): void {
    const watches = this.#watches.get(path) ?? [];
    this.#watches.delete(path);
    for (const watch of watches) watch();
  }

  /** Calls all watches: the server of a new connection does not know those of the old one. */
  callAll(): void {
    for (const path of [...this.#watches.keys()]) this.changed(path);
  }
}
