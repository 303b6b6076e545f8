import * as z from "zod/mini";
import { callAws, parseArn } from "./lambda/aws-call.ts";

/** What functions find in their environment. A secret stands in it by the ARN under which it is kept. */
export interface FunctionEnvironment {
  /** The URL of the store with stock and runs: LOCKSTEP_STORE, or the secret LOCKSTEP_STORE_ARN. */
  readonly store: string;

  /** The URL of the store with the locks, where that is another one: LOCKSTEP_LOCKS or LOCKSTEP_LOCKS_ARN. */
  readonly locks: string | undefined;

  /**
   * What a client must present one of: LOCKSTEP_TOKEN or LOCKSTEP_TOKEN_ARN, with spaces between them. While clients
   * change over to a new one, there are two.
   */
  readonly tokens: readonly string[];

  /** Where messages go that can never succeed: the ARN of a queue, LOCKSTEP_POISON_QUEUE. */
  readonly poisonQueue: string | undefined;
}

/** What a secret holds, by its ARN. */
export type ReadSecret = (arn: string) => Promise<string>;

const url = z.string().check(z.regex(/^[a-z][a-z0-9+.-]*:/i, "must be the URL of a store"));
const tokens = z
  .string()
  .check(z.regex(/^\S{16,}(\s+\S{16,})*$/, "must be tokens of at least 16 characters"));

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
 * Rejects with a TypeError that names each variable that is missing or wrong, and shows no value. An empty variable
 * is one that is not there: templates cannot leave one out.
 */
export async function readEnvironment(
  environment: NodeJS.ProcessEnv = process.env,
  readSecret: ReadSecret = secretOf,
): Promise<FunctionEnvironment> {
  const given = Object.entries(environment).filter(([, value]) => value !== "");
  const known = Object.fromEntries(given);
  const secrets = SECRETS.map(async (name) => {
    const arn = known[`${name}_ARN`];
    return arn === undefined ? [] : [[name, (await readSecret(arn)).trim()]];
  });
  const values = { ...known, ...Object.fromEntries((await Promise.all(secrets)).flat()) };
  const parsed = Environment.safeParse(values);
  if (!parsed.success) throw new TypeError(`the environment is not right: ${problemsOf(parsed)}`);
  const { data } = parsed;
  return {
    store: data.LOCKSTEP_STORE,
    locks: data.LOCKSTEP_LOCKS,
    tokens: data.LOCKSTEP_TOKEN?.split(/\s+/) ?? [],
    poisonQueue: data.LOCKSTEP_POISON_QUEUE,
  };
}

function problemsOf({ error }: { readonly error: z.core.$ZodError }): string {
  return error.issues
    .map(({ path, code, message }) =>
      code === "invalid_type" ? `${path.join(".")} is missing` : `${path.join(".")} ${message}`,
    )
    .join("; ");
}

/** From the AWS Secrets Manager. */
async function secretOf(arn: string): Promise<string> {
  const { region, host } = parseArn(arn);
  const endpoint = process.env.AWS_ENDPOINT_URL_SECRETS_MANAGER ?? `https://${host}`;
  const target = "secretsmanager.GetSecretValue";
  const about = { service: "secretsmanager", region, endpoint, version: "1.1" } as const;
  const { SecretString } = await callAws<{ readonly SecretString?: string }>({
    ...about,
    target,
    body: { SecretId: arn },
  });
  if (SecretString === undefined) throw new TypeError(`${arn} is no text`);
  return SecretString;
}
