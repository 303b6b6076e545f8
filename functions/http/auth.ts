import { wrongType } from "../../core/lock/checks.ts";
import { checkOptionNames, type OptionNames } from "../../core/lock/options.ts";
import { toProblem } from "./problem.ts";
import type { RequestHead } from "./request.ts";

/** The operation that a request asks for. */
export interface AuthorizationRequest {
  /** The operationId of the OpenAPI document; "unknown" for a path or method without an operation. */
  readonly operation: string;
  readonly access: "read" | "write";

  /** The decoded parameters of the path: sku, runId, workflow … */
  readonly params: Readonly<Record<string, string>>;

  /**
   * The Idempotency-Key, if any: the id of the new run or of the change. All callers share one namespace; `authorize`
   * may require a prefix per caller.
   */
  readonly key?: string;
}

/** Allows the request. A member `principal` that is not a text, such as `undefined`, makes it `unauthenticated`. */
interface Authorization {
  /** The authenticated caller, for the access log. */
  readonly principal?: string;
}

/** - `unauthenticated`: the credentials are missing or invalid. - `forbidden`: the caller may not do this. */
type AuthorizationDecision = Authorization | "unauthenticated" | "forbidden";

/**
 * Decides about each request before the body is read. A rejection refuses the request.
 *
 * `platform` is the runtime's second argument of `app.fetch`: `{ event, context }` in AWS Lambda.
 */
export type Authorize = (
  request: RequestHead,
  operation: AuthorizationRequest,
  platform: unknown,
) => AuthorizationDecision | Promise<AuthorizationDecision>;

/** Calls the hook. Rejects with a Problem for any error of the hook and for any other value than a decision. */
export async function callAuthorize(
  hook: () => AuthorizationDecision | Promise<AuthorizationDecision>,
): Promise<AuthorizationDecision> {
  try {
    const decision: unknown = await hook();
    if (decision === "unauthenticated" || decision === "forbidden") return decision;
    if (isAuthorization(decision)) return isUnnamed(decision) ? "unauthenticated" : decision;
    const allowed = '{ principal }, "unauthenticated" or "forbidden"';
    throw new TypeError(`authorize must return ${allowed}`);
  } catch (error) {
    throw toProblem(error);
  }
}

/** An object with other members does not allow: hooks of other systems refuse with `isAuthorized: false`. */
function isAuthorization(value: unknown): value is Authorization {
  return isPlain(value) && Object.keys(value).every((key) => key === "principal");
}

/** Whether the value is a `{}` of any realm: an array, an Error or a Response has no keys either. */
function isPlain(value: unknown): value is object {
  if (typeof value !== "object" || value === null) return false;
  const prototype = Object.getPrototypeOf(value);
  return prototype === null || Object.getPrototypeOf(prototype) === null;
}

/** Whether the hook has looked for the caller in vain, as in `{ principal: users[token] }`. */
function isUnnamed(value: Authorization): boolean {
  const { principal } = value;
  return Object.hasOwn(value, "principal") && (typeof principal !== "string" || principal === "");
}

export interface BearerToken {
  /** At least 16 characters without spaces. */
  readonly token: string;

  /** Default both. */
  readonly scopes?: readonly AuthorizationRequest["access"][];

  /** The owner of the token, for the access log. */
  readonly principal?: string;
}

/**
 * Authenticates `Authorization: Bearer TOKEN` with these tokens. Throws a RangeError for a token that is too short, or not of ASCII.
 *
 * The comparison takes constant time: it compares the digests of all tokens to their end.
 */
export function bearer(tokens: readonly (string | BearerToken)[]): Authorize {
  if (!Array.isArray(tokens)) throw wrongType("the tokens of bearer", "a list", tokens);
  const accepted = tokens.map((token) => checkToken(typeof token === "string" ? { token } : token));
  const digests = Promise.all(accepted.map(({ token }) => digestOf(token)));
  return async (request, { access }) => {
    const presented = /^bearer +(\S+)$/i.exec(request.headers.get("authorization") ?? "")?.[1];
    if (presented === undefined) return "unauthenticated";
    const digest = await digestOf(presented);
    const matches = (await digests).map((one) => isSame(one, digest));
    const match = accepted[matches.indexOf(true)];
    if (!match) return "unauthenticated";
    const { principal, scopes = ["read", "write"] } = match;
    return scopes.includes(access) ? { ...(principal && { principal }) } : "forbidden";
  };
}

const TOKEN = { token: true, scopes: true, principal: true } satisfies OptionNames<BearerToken>;

function checkToken(token: BearerToken): BearerToken {
  checkOptionNames("bearer", token, TOKEN);
  const { principal = "" } = Object(token);
  if (typeof principal !== "string") throw wrongType("principal of bearer", "a string", principal);
  if (typeof token?.token === "string" && /^[\x21-\x7e]{16,}$/.test(token.token)) return token;
  throw new RangeError("a bearer token must have at least 16 characters of ASCII and no space");
}

/**
 * Accepts the requests that an authorizer of API Gateway (IAM, JWT or Lambda) has allowed.
 *
 * Refuses a request that no authorizer has checked.
 */
export const gatewayAuthorizer: Authorize = (_request, _operation, platform) => {
  const { event } = Object(platform) as { readonly event?: GatewayEvent };
  const { authorizer, identity } = event?.requestContext ?? {};
  // A REST API with IAM has no authorizer. In payload 1.0, a request that no authorizer checked has one whose members are null.
  const userArn = authorizer?.iam?.userArn ?? identity?.userArn;
  const isV2 = event?.version === "2.0";
  const members = Object.values(authorizer ?? {}).filter((value) => isV2 || value != null);
  if (members.length === 0 && typeof userArn !== "string") return "unauthenticated";
  const { jwt, claims = jwt?.claims, principalId } = authorizer ?? {};
  const principal = userArn ?? claims?.sub ?? principalId;
  return typeof principal === "string" && principal !== "" ? { principal } : {};
};

/** The part of the event that identifies the caller. */
interface GatewayEvent {
  readonly version?: unknown;
  readonly requestContext?: {
    readonly authorizer?: {
      readonly iam?: { readonly userArn?: unknown } | null;
      readonly jwt?: { readonly claims?: Claims | null } | null;

      /** Of a REST API: the claims of Cognito, and the principal of a Lambda authorizer. */
      readonly claims?: Claims | null;
      readonly principalId?: unknown;
    } | null;

    /** Of a REST API. */
    readonly identity?: { readonly userArn?: unknown } | null;
  };
}

type Claims = Readonly<Record<string, unknown>>;

async function digestOf(text: string): Promise<Uint8Array> {
  return new Uint8Array(await crypto.subtle.digest("SHA-256", new TextEncoder().encode(text)));
}

function isSame(a: Uint8Array, b: Uint8Array): boolean {
  return a.reduce((difference, byte, i) => difference | (byte ^ (b[i] ?? 0)), 0) === 0;
}
