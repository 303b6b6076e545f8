import { deadline, noAnswer, race, sleep } from "../lock/abort.ts";
import { pause } from "../lock/answers.ts";
import { SessionExpiredError, StoreUnavailableError, UnknownOutcomeError } from "../lock/errors.ts";
import { type Grant, margin } from "../lock/life.ts";
import { after, elapsedSince, type Instant, instant, type Millis } from "../lock/time.ts";
import { type Answer, Connection } from "./connection.ts";
import { CODES, toError } from "./failure.ts";
import { Pulse } from "./pulse.ts";
import {
  type Access,
  authPacket,
  childrenRequest,
  closeRequest,
  createRequest,
  MultiFailure,
  multiRequest,
  type Request,
  readRequest,
  removeRequest,
  syncRequest,
  writeRequest,
} from "./requests.ts";
import {
  type Created,
  type NewNode,
  type Node,
  NoNodeError,
  type Op,
  type Path,
  type Read,
  type Session,
  type Stat,
  type Watch,
  type Write,
  type Zxid,
} from "./zookeeper.ts";

/** Where sessions connect to, in turn, and as whom. */
export interface Servers {
  readonly address: string;
  readonly login: { readonly user: string; readonly password: string } | undefined;

  /** host:port of the next one. */
  next(): string;
  readonly count: number;
}

/** How long one tries to open a session, or to close it. */
const PATIENCE: Millis = 5_000;

/** A request on its way, or waiting for a connection. */
interface Asked {
  readonly request: Request<unknown>;
  readonly watch: { readonly path: Path; readonly watch: Watch } | undefined;
  sentAt: Instant | undefined;

  /** Nobody waits for the answer any more. */
  isOver: boolean;
  resolve(answer: unknown): void;
  reject(error: unknown): void;
}

/** A session over one connection after another. */
export class LiveSession implements Session {
  readonly #servers: Servers;
  readonly #access: Access;
  readonly #ended = new AbortController();
  readonly #watches = new Map<Path, Set<Watch>>();
  #grant: Grant;
  #id = 0n;
  #password: Uint8Array = new Uint8Array(16);
  #lastZxid: Zxid = 0n;
  #connection: Connection | undefined;
  #pulse: Pulse | undefined;
  #isResting = false;
  #connecting: Promise<void> | undefined;
  #closing: Promise<void> | undefined;

  /** Sent, in order, and not answered. */
  #sent: Asked[] = [];

  /** Not sent: there is no connection. */
  #queued: Asked[] = [];
  #renewed = Promise.withResolvers<void>();
  #stopExpiry = () => {};

  private constructor(servers: Servers, ttl: Millis) {
    this.#servers = servers;
    this.#access = servers.login ? "creator" : "anyone";
    this.#grant = { ttl, sentAt: instant() };
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
    return this.#grant.ttl;
  }

  get signal(): AbortSignal {
    return this.#ended.signal;
  }

  get granted(): Grant {
    return this.#grant;
  }

  remaining(): Millis {
    if (this.signal.aborted) return 0;
    return this.ttl - margin(this.ttl) - elapsedSince(this.#grant.sentAt);
  }

  async renew(signal: AbortSignal): Promise<Grant | undefined> {
    // Between heartbeats that are answered there is half of it left, at the least.
    while (!this.signal.aborted && this.remaining() < this.ttl / 3) {
      await race(this.#renewed.promise, signal);
    }
    return this.signal.aborted ? undefined : this.#grant;
  }

  async reattach(signal: AbortSignal): Promise<Grant | undefined> {
    this.#lose(this.#connection, new Error("the session moves to a new connection"));
    await race(this.#connectSoon(), signal);
    return this.signal.aborted ? undefined : this.#grant;
  }

  rest(): void {
    this.#isResting = true;
    this.#pulse?.stop();
  }

  create(node: NewNode, signal?: AbortSignal): Promise<Created> {
    return this.#ask(createRequest(node, this.#access), { signal });
  }

  remove(path: Path, signal?: AbortSignal): Promise<void> {
    return this.#ask(removeRequest(path), { signal });
  }

  write(path: Path, data: string, { version, signal }: Write = {}): Promise<Stat> {
    return this.#ask(writeRequest(path, data, version), { signal });
  }

  read(path: Path, { watch, signal }: Read = {}): Promise<Node | undefined> {
    const request = readRequest(path, watch !== undefined);
    return unlessNoNode(this.#ask(request, { signal, ...(watch && { watch: { path, watch } }) }));
  }

  children(path: Path, { watch, signal }: Read = {}): Promise<readonly string[] | undefined> {
    const request = childrenRequest(path, watch !== undefined);
    return unlessNoNode(this.#ask(request, { signal, ...(watch && { watch: { path, watch } }) }));
  }

  sync(signal?: AbortSignal): Promise<void> {
    return this.#ask(syncRequest(), { signal });
  }

  multi(ops: readonly Op[], signal?: AbortSignal): Promise<readonly (Path | undefined)[]> {
    return this.#ask(multiRequest(ops, this.#access), { signal });
  }

  unwatch(path: Path, watch: Watch): void {
    const watches = this.#watches.get(path);
    if (watches?.delete(watch) && watches.size === 0) this.#watches.delete(path);
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
    await this.#ask(closeRequest(), { signal: limit.signal }).catch(() => {});
    limit[Symbol.dispose]();
    this.#end(reason);
  }

  #ask<T>(request: Request<T>, { signal, watch }: AskOptions): Promise<T> {
    return new Promise((resolve, reject) => {
      const quit = [signal, this.signal].find((each) => each?.aborted);
      if (quit) return reject(quit.reason);
      const settle = () => signal?.removeEventListener("abort", onAbort);
      const asked: Asked = {
        request,
        watch,
        sentAt: undefined,
        isOver: false,
        resolve: (answer) => {
          settle();
          resolve(answer as T);
        },
        reject: (error) => {
          settle();
          reject(error);
        },
      };
      const onAbort = () => this.#abandon(asked, signal?.reason);
      signal?.addEventListener("abort", onAbort, { once: true });
      this.#queued.push(asked);
      if (this.#connection) this.#flush(this.#connection);
      else void this.#connectSoon();
    });
  }

  #flush(connection: Connection): void {
    for (const asked of this.#queued.splice(0)) {
      asked.sentAt = instant();
      this.#sent.push(asked);
      connection.ask(asked.request.kind, asked.request.body);
    }
  }

  /** The caller does not wait any longer. What was sent keeps its place: its answer must not be taken for another's. */
  #abandon(asked: Asked, reason: unknown): void {
    const { sentAt, request } = asked;
    asked.isOver = true;
    this.#queued = this.#queued.filter((each) => each !== asked);
    asked.reject(sentAt && request.writes ? this.#unknown(reason) : reason);
    // A connection that has been silent for so long is no good to others either.
    const isSilent = this.#sent[0] === asked && sentAt && elapsedSince(sentAt) > this.ttl / 5;
    if (isSilent) this.#lose(this.#connection, noAnswer());
  }

  #take({ code, body }: Answer): void {
    const asked = this.#sent.shift();
    if (!asked) return this.#lose(this.#connection, new Error("an answer to nothing"));
    const { request, watch, isOver } = asked;
    if (code !== 0) return this.#fail(asked, code);
    try {
      const answer = request.decode(body);
      if (watch && !isOver) this.#watch(watch.path, watch.watch);
      asked.resolve(answer);
    } catch (error) {
      if (error instanceof MultiFailure) return this.#fail(asked, error.code);
      asked.reject(this.#unknown(error));
      throw error;
    }
  }

  #fail({ request, reject }: Asked, code: number): void {
    reject(toError(this.address, code, request.writes));
    if (code === CODES.sessionExpired) this.#end(new SessionExpiredError(this.id));
    if (code === CODES.sessionMoved) this.#lose(this.#connection, new Error("the session moved"));
  }

  #watch(path: Path, watch: Watch): void {
    const watches = this.#watches.get(path) ?? new Set();
    this.#watches.set(path, watches.add(watch));
  }

  #changed(path: Path): void {
    const watches = this.#watches.get(path) ?? [];
    this.#watches.delete(path);
    for (const watch of watches) watch();
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
        const round = Math.floor(attempt / this.#servers.count);
        if (attempt % this.#servers.count === 0) await sleep(pause(round), signal).catch(() => {});
      }
    }
  }

  /** One attempt at one server. */
  async #attach(signal: AbortSignal): Promise<void> {
    const connection: Connection = new Connection(
      this.#servers.next(),
      {
        session: this.#id,
        password: this.#password,
        timeout: this.ttl,
        lastZxid: this.#lastZxid,
      },
      {
        changed: (path) => this.#changed(path),
        answered: (answer) => this.#take(answer),
        ended: (error) => this.#lose(connection, error),
      },
    );
    // The others have to get their turn before the session ends.
    const share = this.ttl / (2 * this.#servers.count);
    const span = Math.min(Math.max(share, 200), 2_000);
    const giveUp = () => connection.destroy(noAnswer());
    const cancel = after(span, giveUp);
    signal.addEventListener("abort", giveUp, { once: true });
    const { session, password, timeout } = await connection.shaken.finally(() => {
      cancel();
      signal.removeEventListener("abort", giveUp);
    });
    if (timeout <= 0) this.#end(new SessionExpiredError(this.id));
    if (this.signal.aborted) return connection.destroy();
    this.#id = session;
    this.#password = password;
    this.#stand(connection, timeout);
  }

  #stand(connection: Connection, ttl: Millis): void {
    const { login } = this.#servers;
    this.#connection = connection;
    this.#prove({ ttl, sentAt: connection.sentAt });
    if (login) connection.send(authPacket(login.user, login.password));
    this.#flush(connection);
    if (this.#isResting) return;
    this.#pulse = new Pulse(connection.sentAt, {
      ttl,
      beat: () => this.sync(),
      proven: (sentAt) => this.#prove({ ttl, sentAt }),
      missed: () => this.#lose(connection, noAnswer()),
    });
  }

  /** A grant never brings the expiry forward. */
  #prove(grant: Grant): void {
    if (grant.sentAt.mono < this.#grant.sentAt.mono) return;
    this.#grant = grant;
    this.#tellRenewed();
    this.#watchExpiry();
  }

  #tellRenewed(): void {
    this.#renewed.resolve();
    this.#renewed = Promise.withResolvers<void>();
  }

  #watchExpiry(): void {
    this.#stopExpiry();
    const check = () => {
      if (this.remaining() > 0) this.#watchExpiry();
      else this.#end(new SessionExpiredError(this.id));
    };
    this.#stopExpiry = after(Math.ceil(this.remaining()), check, { idle: true });
  }

  /** Reads are sent once more, over the next connection. */
  #lose(connection: Connection | undefined, error: Error): void {
    if (!connection || connection !== this.#connection) return;
    this.#connection = undefined;
    this.#lastZxid = connection.lastZxid;
    this.#pulse?.stop();
    connection.destroy();
    const sent = this.#sent;
    this.#sent = [];
    for (const { request, reject } of sent) if (request.writes) reject(this.#unknown(error));
    const again = sent.filter(({ request, isOver }) => !request.writes && !isOver);
    this.#queued = [...again, ...this.#queued];
    this.#lookAgain();
    if (!this.signal.aborted && (!this.#isResting || this.#queued.length > 0)) {
      void this.#connectSoon();
    }
  }

  /** What the old connection would have told, the new one does not. */
  #lookAgain(): void {
    for (const path of [...this.#watches.keys()]) this.#changed(path);
  }

  #end(reason: Error): void {
    if (this.signal.aborted) return;
    this.#stopExpiry();
    this.#ended.abort(reason);
    this.#lose(this.#connection, reason);
    for (const { reject } of this.#queued.splice(0)) reject(reason);
    this.#lookAgain();
    this.#tellRenewed();
  }

  #unknown(cause: unknown): UnknownOutcomeError {
    return new UnknownOutcomeError(this.address, "a request was carried out", cause);
  }
}

interface AskOptions {
  readonly signal: AbortSignal | undefined;
  readonly watch?: { readonly path: Path; readonly watch: Watch };
}

async function unlessNoNode<T>(answer: Promise<T>): Promise<T | undefined> {
  try {
    return await answer;
  } catch (error) {
    if (error instanceof NoNodeError) return undefined;
    throw error;
  }
}
