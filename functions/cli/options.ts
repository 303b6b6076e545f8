import ms from "ms";
import type { Argv } from "yargs";
import { readConfig } from "../../infra/config.ts";

export interface StoreArgs {
  readonly store: string;
}

/** Adds the option --store. */
export function storeOption<T>(yargs: Argv<T>): Argv<T & StoreArgs> {
  return yargs.option("store", {
    type: "string",
    describe: "the store's URL; also from LOCKSTEP_STORE",
    default: readConfig().store,
    defaultDescription: "one SQLite file per user",
    requiresArg: true,
  });
}

/** Adds the option --store to a command that uses nothing but locks. */
export function lockStoreOption<T>(yargs: Argv<T>): Argv<T & StoreArgs> {
  const { locks, store } = readConfig();
  return yargs.option("store", {
    type: "string",
    describe: "the URL of the locks' store; also from LOCKSTEP_LOCKS or LOCKSTEP_STORE",
    default: locks ?? store,
    defaultDescription: "one SQLite file per user",
    requiresArg: true,
  });
}

/** Adds the option --locks; `describe` says whose locks the store holds. */
export function locksOption<T>(yargs: Argv<T>, describe: string) {
  return yargs.option("locks", {
    type: "string",
    describe: `${describe}, if not the store's own; also from LOCKSTEP_LOCKS`,
    default: readConfig().locks,
    defaultDescription: "the store",
    requiresArg: true,
  });
}

/** Adds the option --json. */
export function jsonOption<T>(yargs: Argv<T>) {
  return yargs.option("json", {
    type: "boolean",
    default: false,
    describe: "print one JSON document",
  });
}

/** Parses a duration such as 10s, 500ms or 1.5h, into milliseconds. Only 0 needs no unit. */
export function parseDuration(option: string, text: string): number {
  if (/^-\d/.test(text)) throw new TypeError(`--${option} must not be negative, and is ${text}`);
  if (/^\d+(\.\d+)?$/.test(text) && Number(text) !== 0) {
    throw new TypeError(
      `--${option} ${text} has no unit: write ${text}s for seconds, ${text}ms for milliseconds`,
    );
  }
  if (/^0+(\.0+)?$/.test(text)) return 0;
  // As `Duration` of the library.
  const isDuration = /^\d+(\.\d+)?(ms|s|m|h|d)$/.test(text);
  const duration = isDuration ? ms(text as ms.StringValue) : undefined;
  if (duration === undefined)
    throw new TypeError(`--${option} must be a duration such as 10s or 500ms, not "${text}"`);
  return duration;
}

/** Parses a whole number. Accepts digits only: an empty word is no number. */
export function parseInteger(argument: string, text: string): number {
  if (!/^\d+$/.test(text)) throw new TypeError(`${argument} must be a whole number, not "${text}"`);
  return Number(text);
}
