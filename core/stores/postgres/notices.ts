import type { QueryResult } from "pg";
import { type Notices, type Sql, sql } from "../../database/sql.ts";
import { deadline, noAnswer, race } from "../../lock/abort.ts";
import { StoreClosedError } from "../../lock/errors.ts";
import { Notifier } from "../../lock/notifier.ts";
import { type Backoff, backoff } from "../../lock/retry.ts";
import { LONGEST_CONNECT, PooledConnection } from "../sql/server/connection.ts";
import type { PostgresWire } from "./wire.ts";

/** The pauses between two attempts to listen. */
const RECONNECT: Backoff = { base: 100, factor: 2, max: 60_000 };

type OnText = (text: string | undefined) => void;

/**
 * Notices by NOTIFY and LISTEN. One connection listens, from the first listener until `close`.
 *
 * In a pooler's transaction mode, LISTEN would succeed in vain. So a connection listens only if its server process is the
 * one that the login has named: a pooler names processes of its own.
 */
export class PostgresNotices implements Notices {
  readonly #load: () => Promise<() => PostgresWire>;
  readonly #listeners = new Map<string, Set<OnText>>();

  /** The channels that the server has confirmed. */
  readonly #active = new Set<string>();

  /** Notifies of a new listener, and of the end of the connection. */
  readonly #changed = new Notifier();
  readonly #closing = new AbortController();
  #failures = 0;
  #listening: Promise<void> | undefined;

  constructor(load: () => Promise<() => PostgresWire>) {
    this.#load = load;
  }

  send(channel: string, text: Sql): Sql {
    return sql`pg_notify(${channel}, ${text})`;
  }

  listen(channel: string, onText: OnText): () => void {
    this.#closing.signal.throwIfAborted();
    const listeners = this.#listeners.get(channel) ?? new Set();
    this.#listeners.set(channel, listeners.add(onText));
    this.#changed.notify();
    this.#listening ??= this.#listenUntilClosed().catch(() => {});
    return () => void listeners.delete(onText);
  }

  isActive(channel: string): boolean {
    return this.#active.has(channel);
  }

  async close(): Promise<void> {
    this.#closing.abort(new StoreClosedError());
    await this.#listening;
  }

  /** Listens again after each failure. Without notices, waiters poll. Rejects when the database is closed. */
  async #listenUntilClosed(): Promise<void> {
    const { signal } = this.#closing;
    for (;;) {
      await this.#listenOnce().catch(() => {});
      this.#failures += 1;
      const span = backoff(this.#failures, RECONNECT);
      await new Notifier().wait({ span, signal, idle: true });
      while (!this.#isAwaited) await this.#changed.wait({ signal });
    }
  }

  get #isAwaited(): boolean {
    return this.#listeners.values().some(({ size }) => size > 0);
  }

  /** Connects, and listens to all channels until the connection ends. */
  async #listenOnce(): Promise<void> {
    const connect = await this.#load();
    const { signal } = this.#closing;
    signal.throwIfAborted();
    const connection = new PooledConnection(connect());
    void connection.closed.then(() => this.#changed.notify());
    connection.wire.onNotice((channel, text) => this.#tell(channel, text));
    try {
      await inTime(connection.ready, signal);
      const ask = inTime(connection.query("SELECT pg_backend_pid() AS pid"), signal);
      const { rows } = (await ask) as QueryResult;
      if (rows[0]?.pid !== connection.wire.serverProcess) return;
      while (!connection.isClosed) {
        for (const channel of this.#listeners.keys()) {
          if (this.#active.has(channel)) continue;
          await inTime(connection.query(`LISTEN ${channel}`), signal);
          this.#failures = 0;
          this.#active.add(channel);
          this.#tell(channel, undefined);
        }
        await this.#changed.wait({ signal });
      }
    } finally {
      connection.end();
      const lost = [...this.#active];
      this.#active.clear();
      for (const channel of lost) this.#tell(channel, undefined);
      await connection.closed;
    }
  }

  #tell(channel: string, text: string | undefined): void {
    for (const onText of this.#listeners.get(channel) ?? []) onText(text);
  }
}

async function inTime<T>(answer: Promise<T>, signal: AbortSignal): Promise<T> {
  using limit = deadline(LONGEST_CONNECT, noAnswer, signal);
  return await race(answer, limit.signal);
}
