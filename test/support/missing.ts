import { findOrThrow, NotInstalledError } from "../../infra/servers/binaries.ts";
import { KINDS, type ServerName } from "../../infra/servers/kinds.ts";

/** A placeholder for a server that cannot be installed. Its use throws, so that the test is skipped. */
export interface Missing {
  readonly name: string;

  /** Names the missing program and how to install it. */
  readonly missing: string;
}

/** Skips the test if one of these servers is not installed. For servers that another process starts. */
export async function needServers(...names: readonly ServerName[]): Promise<void> {
  for (const name of names) await findOrThrow(KINDS[name], () => {});
}

/** Returns the message of a NotInstalledError in the error's chain of causes, or undefined. */
export function missingIn(error: unknown): string | undefined {
  const { name, message, cause } = Object(error);
  if (name === NotInstalledError.name) return message;
  return cause === undefined ? undefined : missingIn(cause);
}

/** Resolves to the started server, or to a placeholder of the same shape if the server is not installed. */
export async function orMissing<T extends { readonly name: string }>(
  start: Promise<{ readonly about: T; stop(): Promise<void> }>,
  shape: T,
): Promise<{ readonly about: T & Partial<Missing>; stop(): Promise<void> }> {
  return start.catch((error: unknown) => {
    const missing = missingIn(error);
    if (missing === undefined) throw error;
    return { about: { ...shape, missing }, stop: async () => {} };
  });
}

/** Wraps a server so that reads throw, except those of its name and of the lengths of its lists. */
export function unusable<T extends object>(server: T, missing: string): T {
  return new Proxy(server, {
    get(target, key) {
      const value = Reflect.get(target, key);
      if (key === "name" || key === "length" || typeof key === "symbol") return value;
      if (Array.isArray(value)) return unusable(value, missing);
      throw new NotInstalledError(missing);
    },
  });
}
