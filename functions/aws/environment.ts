import * as z from "zod/mini";
import { rdsUrl, readSecret as readSecretOfAws } from "../lambda/secret.ts";

/** The configuration of the functions. For a secret, the environment has the ARN of the secret. */
export interface FunctionEnvironment {
  /** The URL of the store with stock and runs: LOCKSTEP_STORE, or the secret LOCKSTEP_STORE_ARN. */
  readonly store: string;

  /** The URL of a separate store for locks: LOCKSTEP_LOCKS, or the secret LOCKSTEP_LOCKS_ARN. */
  readonly locks: string | undefined;

  /**
   * The bearer tokens of which a client must present one: LOCKSTEP_TOKEN or the secret LOCKSTEP_TOKEN_ARN, separated by
   * spaces. Two tokens allow clients to change from the old one to the new one.
   */
  readonly tokens: readonly string[];

  /** The ARN of the queue for poison messages: LOCKSTEP_POISON_QUEUE. */
  readonly poisonQueue: string | undefined;
}

/** Reads the value of a secret by its ARN. */
export type ReadSecret = (arn: string) => Promise<string>;

const url = z.string().check(z.regex(/^[a-z][a-z0-9+.-]*:/i, "must be the URL of a store"));
const tokens = z
  .string()
  .check(
    z.regex(/^[!-~]{16,}(\s+[!-~]{16,})*$/, "must be tokens of at least 16 characters of ASCII"),
  );

const Environment = z.object({
  LOCKSTEP_STORE: url,
  LOCKSTEP_LOCKS: z.optional(url),
  LOCKSTEP_TOKEN: z.optional(tokens),
  LOCKSTEP_POISON_QUEUE: z.optional(
    z.string().check(z.regex(/^arn:[\w-]+:sqs:/, "must be the ARN of a queue")),
  ),
});

const SECRETS = ["LOCKSTEP_STORE", "LOCKSTEP_LOCKS", "LOCKSTEP_TOKEN"] as const;

/**
 * Reads the configuration. Rejects with a TypeError that names each missing or invalid variable and shows no value. An
 * empty variable counts as missing: templates cannot omit a variable.
 */
export async function readEnvironment(
  environment: NodeJS.ProcessEnv = process.env,
  readSecret: ReadSecret = readSecretOfAws,
): Promise<FunctionEnvironment> {
  const given = Object.entries(environment).filter(([, value]) => value !== "");
  const known = Object.fromEntries(given);
  const secrets = SECRETS.map(async (name) => {
    const arn = known[`${name}_ARN`];
    return arn === undefined ? [] : [[name, toUrl(await readSecret(arn))]];
  });
  const values = { ...known, ...Object.fromEntries((await Promise.all(secrets)).flat()) };
  const parsed = Environment.safeParse(values);
  if (!parsed.success) throw new TypeError(`the environment is not valid: ${issuesIn(parsed)}`);
  const { data } = parsed;
  return {
    store: data.LOCKSTEP_STORE,
    locks: data.LOCKSTEP_LOCKS,
    tokens: data.LOCKSTEP_TOKEN?.split(/\s+/) ?? [],
    poisonQueue: data.LOCKSTEP_POISON_QUEUE,
  };
}

function issuesIn({ error }: { readonly error: z.core.$ZodError }): string {
  return error.issues
    .map(({ path, code, message }) =>
      code === "invalid_type" ? `${path.join(".")} is missing` : `${path.join(".")} ${message}`,
    )
    .join("; ");
}

/** Returns the URL of the database in a secret of RDS. Every other secret is used as it is. */
function toUrl(secret: string): string {
  return secret.startsWith("{") ? rdsUrl(secret) : secret;
}
