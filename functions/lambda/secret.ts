import { checkFunction } from "../../core/lock/checks.ts";
import { type Duration, toMillis } from "../../core/lock/duration.ts";
import { checkOptionNames, type OptionNames } from "../../core/lock/options.ts";
import { elapsedSince, instant, type Millis } from "../../core/lock/time.ts";
import type { AwsKeys } from "../../core/stores/aws-keys.ts";
import { callAws, parseArn } from "./aws-call.ts";

/** The longest invocation of Lambda. */
const LONGEST_INVOCATION: Millis = 900_000;

/** Reads a secret of the AWS Secrets Manager by its ARN. Rejects with a TypeError when the secret is not text. */
export async function readSecret(arn: string, credentials?: AwsKeys): Promise<string> {
  const { region, host } = parseArn(arn);
  const endpoint = process.env.AWS_ENDPOINT_URL_SECRETS_MANAGER ?? `https://${host}`;
  const target = "secretsmanager.GetSecretValue";
  const common = { service: "secretsmanager", region, endpoint, version: "1.1" } as const;
  const { SecretString } = await callAws<{ readonly SecretString?: string }>({
    ...common,
    target,
    body: { SecretId: arn },
    credentials,
  });
  if (SecretString === undefined) throw new TypeError(`the secret ${arn} is not text`);
  return SecretString.trim();
}

interface SecretOptions {
  /** The time after which the next event reads the secret again. Default 5 min. */
  readonly maxAge?: Duration;

  /**
   * The keys that sign the request, or a function that returns them, such as a provider of the AWS SDK. Default: those in
   * the environment, where Lambda puts them.
   */
  readonly credentials?: AwsKeys;
}

const SECRET_OPTIONS = { maxAge: true, credentials: true } satisfies OptionNames<SecretOptions>;

/**
 * Opens a store with a secret in the first invocation, and reuses it in the next ones. When the secret has been rotated,
 * opens the store again; the former one is closed 15 minutes later, when no invocation uses it any more. A failed `open` is
 * tried again; while the secret cannot be read again, the known store stays.
 *
 *     const shop = withSecret("arn:aws:secretsmanager:…", (secret) => openMysql(rdsOptions(secret)));
 */
export function withSecret<T extends AsyncDisposable>(
  arn: string,
  open: (secret: string) => Promise<T>,
  options: SecretOptions = {},
): () => Promise<T> {
  checkFunction("the function of withSecret", open);
  checkOptionNames("withSecret", options, SECRET_OPTIONS);
  const { maxAge = "5m", credentials } = options;
  const longest = toMillis("maxAge", maxAge);
  let known: { readonly secret: string; readonly store: T } | undefined;
  let readAt = instant();
  let refreshing: Promise<T> | undefined;

  async function refresh(): Promise<T> {
    // Not the value: it may be the secret itself.
    if (typeof arn !== "string" || !arn.startsWith("arn:")) {
      throw new TypeError(
        `withSecret needs the ARN of a secret, and has ${arn ? "another" : "no"} text`,
      );
    }
    const secret = await readSecret(arn, credentials).catch((error) => {
      if (known) return known.secret;
      throw error;
    });
    const store = known?.secret === secret ? known.store : await open(secret);
    if (known && known.store !== store) closeLater(known.store);
    known = { secret, store };
    readAt = instant();
    return store;
  }

  return async () => {
    if (known && elapsedSince(readAt) < longest) return known.store;
    refreshing ??= refresh().finally(() => {
      refreshing = undefined;
    });
    return refreshing;
  };
}

/** Its locks and runs belong to work that may still go on. Connections end by themselves if closing the store fails. */
function closeLater(store: AsyncDisposable): void {
  const close = () => void store[Symbol.asyncDispose]().then(undefined, () => {});
  setTimeout(close, LONGEST_INVOCATION).unref();
}

/** The options of `openMysql` and `openPostgres` in a secret that RDS keeps. */
interface RdsOptions {
  readonly host: string;

  /** Without it, that of the database. */
  readonly port?: number;
  readonly user: string;
  readonly password: string;
  readonly database: string;
}

/**
 * Reads the JSON of a secret that RDS keeps for MySQL, MariaDB or PostgreSQL. `more` has what the JSON lacks: the secret
 * of a master user has user and password alone. Throws a TypeError that names a missing field, and shows no value.
 */
export function rdsOptions(secret: string, more: Partial<RdsOptions> = {}): RdsOptions {
  const { host, port, username: user, password, dbname: database } = fieldsOf(secret);
  const found = { host, port: port === undefined ? port : Number(port), user, password, database };
  const options = { ...withoutMissing(found), ...more };
  for (const field of ["host", "user", "password", "database"] as const) {
    if (typeof options[field] !== "string" || options[field] === "") {
      throw new TypeError(`the secret of RDS has no ${field}; give it as an option`);
    }
  }
  return options as RdsOptions;
}

/** Returns the URL of the database in a secret that RDS keeps, over TLS. PostgreSQL is told by the secret's engine. */
export function rdsUrl(secret: string): string {
  const { host, port, user, password, database } = rdsOptions(secret);
  const login = [user, password].map(encodeURIComponent).join(":");
  const address = `${login}@${host}${port === undefined ? "" : `:${port}`}/${encodeURIComponent(database)}`;
  const isPostgres = /postgres/.test(String(fieldsOf(secret).engine));
  return isPostgres ? `postgres://${address}?sslmode=verify-full` : `mysqls://${address}`;
}

function withoutMissing(fields: object): Partial<RdsOptions> {
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined));
}

function fieldsOf(secret: string): Readonly<Record<string, unknown>> {
  try {
    return Object(JSON.parse(secret));
  } catch {
    // The error of JSON.parse shows a part of the text.
    throw new TypeError("the secret of RDS is not JSON");
  }
}
