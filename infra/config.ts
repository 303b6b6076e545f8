import * as z from "zod";

const Environment = z.object({
  LOCKSTEP_STORE: z.string().min(1).default("sqlite:.lockstep/lockstep.db"),
  LOCKSTEP_LOCKS: z.string().min(1).optional(),
  LOCKSTEP_TOKEN: z
    .string()
    .regex(/^\S{16,}$/, "must have at least 16 characters")
    .optional(),
  LOCKSTEP_SECRET: z.string().min(16, "must have at least 16 characters").optional(),
});

export interface Config {
  /** The store's URL. */
  readonly store: string;

  /** The URL of the store with the locks of workflows, where that is another one. */
  readonly locks: string | undefined;

  /** What a client of the HTTP server must present. */
  readonly token: string | undefined;

  /** Seals fences that go to other processes. */
  readonly secret: string | undefined;
}

/** What the environment says. Throws a TypeError with all that is wrong with it; values are not shown. */
export function readConfig(environment: NodeJS.ProcessEnv = process.env): Config {
  const parsed = Environment.safeParse(environment);
  if (!parsed.success) {
    const problems = parsed.error.issues.map(({ path, message }) => `${path.join(".")} ${message}`);
    throw new TypeError(`the environment is not right: ${problems.join("; ")}`);
  }
  const { LOCKSTEP_STORE, LOCKSTEP_LOCKS, LOCKSTEP_TOKEN, LOCKSTEP_SECRET } = parsed.data;
  return {
    store: LOCKSTEP_STORE,
    locks: LOCKSTEP_LOCKS,
    token: LOCKSTEP_TOKEN,
    secret: LOCKSTEP_SECRET,
  };
}
