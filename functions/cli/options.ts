import ms from "ms";
import type { Argv } from "yargs";
import type { Database } from "../../core/database/sql.ts";
import { readConfig } from "../../infra/config.ts";
import { type Opened, open } from "../../infra/open.ts";
import { redact } from "../../infra/redact.ts";

export interface StoreArgs {
  readonly store: string;
}

/** The option that every command with a store has. */
export function withStore<T>(yargs: Argv<T>): Argv<T & StoreArgs> {
  return yargs.option("store", {
    type: "string",
    describe: "the store's URL; also from LOCKSTEP_STORE",
    default: readConfig().store,
    defaultDescription: "sqlite:.lockstep/lockstep.db",
    requiresArg: true,
  });
}

/** Opens the store, does the work, and closes the store whatever happens. */
export async function using<T>(
  { store }: StoreArgs,
  work: (opened: Opened) => Promise<T>,
): Promise<T> {
  const opened = await open(store);
  try {
    return await work(opened);
  } finally {
    await opened.close();
  }
}

/** For what only a database keeps: runs and orders. Throws a TypeError for another store. */
export function databaseOf({ database, locks }: Opened): Database {
  if (database) return database;
  const { name } = locks.traits;
  throw new TypeError(`--store must name a database, such as sqlite: or mysql:, not ${name}:`);
}

/** A span such as 10s, 500ms, 1.5h or a number of milliseconds. */
export function toMillis(what: string, text: string): number {
  const span = /^\d+(\.\d+)?\s*[a-z]*$/i.test(text) ? ms(text as ms.StringValue) : undefined;
  if (span === undefined)
    throw new TypeError(`--${what} must be a span such as 10s or 500ms, not "${text}"`);
  return span;
}

/** A whole number, in digits and nothing else: an empty word is no number. */
export function toWhole(what: string, text: string): number {
  if (!/^\d+$/.test(text)) throw new TypeError(`${what} must be a whole number, not "${text}"`);
  return Number(text);
}

/** The one line or document that a command is for, on standard output. */
export function print(line: string): void {
  process.stdout.write(`${line}\n`);
}

/** What a human may want to know meanwhile; a pipe is left alone. */
export function note(line: string): void {
  if (process.stderr.isTTY) process.stderr.write(`${line}\n`);
}

/** What must be said wherever it goes. */
export function warn(line: string): void {
  process.stderr.write(`lockstep: ${redact(line)}\n`);
}
