import { toProblem } from "./problem.ts";

/** What a request is about to do. */
export interface Asked {
  /** The name of the operation, as in the OpenAPI document; "unknown" where there is none. */
  readonly operation: string;
  readonly access: "read" | "write";

  /** The parameters in the path, decoded: sku, runId, workflow … */
  readonly params: Readonly<Record<string, string>>;

  /**
   * The Idempotency-Key, where there is one: the id of the run to begin, or of the change. All callers share these
   * names, so whoever should not meet another's may be made to begin theirs with something of their own.
   */
  readonly key?: string;
}

/** The request may go on. */
export interface Granted {
  /** Who asks, for the log. */
  readonly who?: string;
}

/** - `unauthenticated`: nobody knows who it is. - `forbidden`: who it is may not do this. */
export type Verdict = Granted | "unauthenticated" | "forbidden";

/**
 * Decides about each request before its body is read. Whatever it rejects with refuses the request.
 *
 * `platform` is what the runtime has given besides: `{ event, context }` in AWS Lambda.
 */
export type Authorize = (
  request: Request,
  asked: Asked,
  platform: unknown,
) => Verdict | Promise<Verdict>;

/** Rejects with a Problem, whatever the hook has thrown. What is no verdict grants nothing. */
export async function decide(hook: () => Verdict | Promise<Verdict>): Promise<Verdict> {
  try {
    const verdict: unknown = await hook();
    if (isVerdict(verdict)) return verdict;
    throw new TypeError("authorize must answer { who }, unauthenticated or forbidden");
  } catch (error) {
    throw toProblem(error);
  }
}

/** Other hooks say no with other members, such as `isAuthorized: false`. */
function isVerdict(value: unknown): value is Verdict {
  if (value === "unauthenticated" || value === "forbidden") return true;
  if (typeof value !== "object" || value === null) return false;
  return Object.keys(value).every((key) => key === "who");
}

export interface BearerToken {
  /** At least 16 characters, none of them a space. */
  readonly token: string;

  /** Default both. */
  readonly scopes?: readonly Asked["access"][];

  /** Who has it, for the log. */
  readonly who?: string;
}

/**
 * `Authorization: Bearer TOKEN`, with one of these tokens. Throws a RangeError for a token that is too short.
 *
 * How long a comparison takes says nothing about the tokens: their digests are compared, all of them to the end.
 */
export function bearer(tokens: readonly (string | BearerToken)[]): Authorize {
  const known = tokens.map((token) => checkToken(typeof token === "string" ? { token } : token));
  const digests = Promise.all(known.map(({ token }) => digestOf(token)));
  return async (request, { access }) => {
    const presented = /^bearer +(\S+)$/i.exec(request.headers.get("authorization") ?? "")?.[1];
    if (presented === undefined) return "unauthenticated";
    const digest = await digestOf(presented);
    const matches = (await digests).map((one) => isSame(one, digest));
    const granted = known[matches.indexOf(true)];
    if (!granted) return "unauthenticated";
    const { who, scopes = ["read", "write"] } = granted;
    return scopes.includes(access) ? { ...(who && { who }) } : "forbidden";
  };
}

function checkToken(token: BearerToken): BearerToken {
  if (/^\S{16,}$/.test(token.token)) return token;
  throw new RangeError("a bearer token has at least 16 characters, and no space");
}

/**
 * For an API Gateway with an authorizer of its own (IAM, JWT or a function), which has let the request pass.
 *
 * Refuses what has come past it: a request that no authorizer has seen.
 */
export const gatewayAuthorizer: Authorize = (_request, _asked, platform) => {
  const { event } = Object(platform) as { readonly event?: GatewayEvent };
  const { authorizer } = event?.requestContext ?? {};
  if (!authorizer || Object.keys(authorizer).length === 0) return "unauthenticated";
  const who = authorizer.iam?.userArn ?? authorizer.jwt?.claims?.sub;
  return typeof who === "string" ? { who } : {};
};

/** What one needs to know of the event. */
interface GatewayEvent {
  readonly requestContext?: {
    readonly authorizer?: {
      readonly iam?: { readonly userArn?: unknown } | null;
      readonly jwt?: { readonly claims?: Readonly<Record<string, unknown>> | null } | null;
    };
  };
}

async function digestOf(text: string): Promise<Uint8Array> {
  return new Uint8Array(await crypto.subtle.digest("SHA-256", new TextEncoder().encode(text)));
}

function isSame(a: Uint8Array, b: Uint8Array): boolean {
  return a.reduce((difference, byte, i) => difference | (byte ^ (b[i] ?? 0)), 0) === 0;
}
