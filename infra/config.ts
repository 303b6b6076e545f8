import { defaultFile } from "./state-folder.ts";

/** The rules for variables that are set. Every command checks them when it starts, so no library is loaded for them. */
const RULES = {
  LOCKSTEP_STORE: { pattern: /./s, rule: "must not be empty" },
  LOCKSTEP_LOCKS: { pattern: /./s, rule: "must not be empty" },
  LOCKSTEP_TOKEN: { pattern: /^\S{16,}$/, rule: "must have at least 16 characters, and no space" },
  LOCKSTEP_SECRET: { pattern: /^.{16,}$/s, rule: "must have at least 16 characters" },
};

export interface Config {
  /** The store's URL. Default: the user's file, see `defaultFile()`. */
  readonly store: string;

  /** The URL of the store of workflow locks, if it is another store. */
  readonly locks: string | undefined;

  /** The bearer token of the HTTP server's clients. */
  readonly token: string | undefined;

  /** The secret that seals fences for other processes. */
  readonly secret: string | undefined;
}

/** Reads the configuration from environment variables. Throws a TypeError with all problems, but no values. */
export function readConfig(environment: NodeJS.ProcessEnv = process.env): Config {
  const problems = Object.entries(RULES).flatMap(([name, { pattern, rule }]) => {
    const value = environment[name];
    return value === undefined || pattern.test(value) ? [] : [`${name} ${rule}`];
  });
  if (problems.length > 0) throw new TypeError(`invalid environment: ${problems.join("; ")}`);
  return {
    store: environment.LOCKSTEP_STORE ?? `sqlite:${defaultFile(environment)}`,
    locks: environment.LOCKSTEP_LOCKS,
    token: environment.LOCKSTEP_TOKEN,
    secret: environment.LOCKSTEP_SECRET,
  };
}
