import * as z from "zod";
import { defaultFile } from "./state-folder.ts";

const Environment = z.object({
  LOCKSTEP_STORE: z.string().min(1).optional(),
  LOCKSTEP_LOCKS: z.string().min(1).optional(),
  LOCKSTEP_TOKEN: z
    .string()
    .regex(/^\S{16,}$/, "must have at least 16 characters")
    .optional(),
  LOCKSTEP_SECRET: z.string().min(16, "must have at least 16 characters").optional(),
});

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
  const parsed = Environment.safeParse(environment);
  if (!parsed.success) {
    const problems = parsed.error.issues.map(({ path, message }) => `${path.join(".")} ${message}`);
    throw new TypeError(`invalid environment: ${problems.join("; ")}`);
  }
  const { LOCKSTEP_STORE, LOCKSTEP_LOCKS, LOCKSTEP_TOKEN, LOCKSTEP_SECRET } = parsed.data;
  return {
    store: LOCKSTEP_STORE ?? `sqlite:${defaultFile(environment)}`,
    locks: LOCKSTEP_LOCKS,
    token: LOCKSTEP_TOKEN,
    secret: LOCKSTEP_SECRET,
  };
}
