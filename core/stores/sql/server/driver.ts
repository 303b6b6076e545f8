import type { Dialect, Notices, Sql, SqlResult } from "../../../database/sql.ts";
import type { Millis } from "../../../lock/time.ts";
import type { PooledConnection, Wire } from "./connection.ts";

/** The database's client and server, as the pool needs to know them. */
export interface PoolDriver<W extends Wire = Wire> {
  /** Loads the client. Resolves to how to make a connection. Rejects with a TypeError when the client is not installed. */
  load(): Promise<() => W>;

  /** Makes a client that ends abandoned statements at the server. */
  killer(connect: () => W): Killer<W>;

  /** Whether the server has refused a connection as one too many. */
  isFull(error: unknown): boolean;
}

/** Ends abandoned statements at the server. */
export interface Killer<W extends Wire = Wire> {
  readonly ready: Promise<void>;

  /**
   * Kills what the connection executes. Resolves to true when the server no longer knows the connection, or after many
   * attempts.
   */
  kill(connection: PooledConnection<W>): Promise<boolean>;
  destroy(): void;
}

/** A SQL server, as `ServerDatabase` needs to know it. */
export interface SqlDriver<W extends Wire = Wire> extends PoolDriver<W> {
  /** The database's URL without secrets, for messages. */
  readonly address: string;
  readonly dialect: Dialect;

  /** Begins a transaction: read committed, so without a snapshot from before the first statement's row lock. */
  readonly begin: readonly string[];

  /** After `begin`: the server rolls the transaction back when its client has been silent for LONGEST_SILENCE. */
  readonly limitSilence: readonly string[];

  /** Before COMMIT or after ROLLBACK: ends that limit where it would outlast the transaction. */
  readonly unlimitSilence: readonly string[];

  /** Whether a lone statement stands between `begin` and COMMIT as well. Otherwise it runs at the session's isolation level. */
  readonly wrapsLone: boolean;

  /** Whether the server has refused a change, as a replica. The address may lead to another server by now. */
  isReadOnly(error: unknown): boolean;

  /** Writes the statement with its values as literals. */
  render(statement: Sql): string;

  /** Converts the client's answer to one statement. */
  toResult(answer: unknown): SqlResult;

  readonly errors: DriverErrors;

  /** Closed with the database. */
  readonly notices?: Notices;
}

/**
 * Converts errors of the client. `driverError` has the fields of the client's error. It is empty when the limit aborted:
 * the caller's reason may be any value.
 */
export interface DriverErrors {
  /** An error of a connection attempt. Nothing has happened. */
  connect(address: string, driverError: object, error: unknown): Error;

  /** An error of statements that end with a COMMIT. Without proof of a rollback, the outcome is unknown. */
  commit(address: string, driverError: object, error: unknown): Error;

  /** An error of a transaction whose COMMIT was not sent. Nothing is committed. */
  uncommitted(address: string, driverError: object, error: unknown): Error;
}

/**
 * The longest time between two requests of a transaction. The rows of a client that was frozen, or whose end the server
 * never learns of, are free again after that.
 */
export const LONGEST_SILENCE: Millis = 10_000;

/** Nothing was committed, and a repetition of the transaction is likely to succeed. A deadlock victim, for one. */
export class RolledBackError extends Error {}
