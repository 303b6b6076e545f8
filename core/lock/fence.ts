import { bytesToHex, hexToBytes } from "@noble/hashes/utils.js";
import { byteLength, checkWhole, HIGHEST_GENERATION, wrongType } from "./checks.ts";
import { LockError, quote } from "./errors.ts";

/**
 * A fencing token: the place of a holder in the order of a lock's holders. The resource compares fences at each guarded
 * write.
 *
 * A holder's fence is greater than the fence of every earlier holder of the same name, across release, expiry and
 * restart.
 *
 * Use one lock store per resource: fences of two stores have no order, and the library cannot tell them apart. Before
 * locks move to another store, raise the generation of the new store above that of the old one (`raiseGeneration`).
 */
export interface Fence {
  /** The lock's name. */
  readonly resource: string;

  /** Raised by an operator when the store has lost its tokens; compared before the token. */
  readonly generation: number;

  readonly token: bigint;

  /** Returns `generation.token` in fixed width, which sorts as text in headers, columns and metadata. */
  toString(): string;
}

/** The holder is late: the resource has accepted a later fence, or the lock is gone. The call has changed nothing. */
export class FencedOutError extends LockError {
  override readonly name = "FencedOutError";
  readonly presented: Fence;

  /**
   * The fence at the resource, in the form of `Fence.toString()`. The presented fence, where the lock is gone and no
   * later holder has come, or where another holder with an equal fence has come first.
   */
  readonly current: string;

  constructor(presented: Fence, current: string, { byEqual = false } = {}) {
    const resource = quote(presented.resource);
    super(problemOf(presented, resource, current, byEqual), {
      code: "FENCED_OUT",
      retryable: false,
    });
    this.presented = presented;
    this.current = current;
  }
}

function problemOf(fence: Fence, resource: string, current: string, byEqual: boolean): string {
  if (!byEqual && current === fence.toString()) {
    return `the lock of fence ${fence} on ${resource} is gone`;
  }
  const problem = byEqual
    ? `another holder used ${resource} first, with a fence equal to ${fence}`
    : `${resource} has moved on to fence ${current}: ${fence} is late`;
  const generation = Number.parseInt(current, 10) + 1;
  if (Number.isNaN(generation)) return problem;
  // The fences of entities are issued by the journal.
  const store = fence.resource.startsWith("entity/") ? "the store of the runs" : "the lock store";
  const cure = `run "lockstep raise-generation --at-least ${generation}" on ${store}`;
  return `${problem}; if every later holder is late too, ${store} has lost its fences: ${cure}`;
}

/** The fence was not issued by a lock, belongs to another resource, or has a broken seal. */
export class FenceInvalidError extends LockError {
  override readonly name = "FenceInvalidError";

  constructor(problem: string) {
    super(`not a valid fence: ${problem}`, { code: "FENCE_INVALID", retryable: false });
  }
}

/** Returns -1, 0 or 1 when `a` was issued before, with or after `b`. Throws a TypeError across resources. */
export function compareFence(a: Fence, b: Fence): -1 | 0 | 1 {
  for (const fence of [a, b]) {
    if (typeof fence?.token !== "bigint") throw wrongType("a fence", "that of a lock", fence);
  }
  if (a.resource !== b.resource) throw new TypeError("fences of different resources have no order");
  if (a.generation !== b.generation) return a.generation < b.generation ? -1 : 1;
  return a.token === b.token ? 0 : a.token < b.token ? -1 : 1;
}

/** Formats a fence: 10 digits of generation and 20 digits of token, the widths of uint32 and uint64. */
export function formatFence(generation: number, token: bigint): string {
  return `${String(generation).padStart(10, "0")}.${String(token).padStart(20, "0")}`;
}

/** The texts of fences. */
export const FENCE_TEXT = /^\d{10}\.\d{20}$/;

/** Returns the text of a fence. Throws a TypeError for anything else. */
export function checkFenceText(fence: unknown): string {
  const text = String(fence);
  if (FENCE_TEXT.test(text)) return text;
  const example = formatFence(0, 42n);
  throw new TypeError(
    `a fence is a text such as "${example}", as inspect shows it, not ${quote(text)}`,
  );
}

class IssuedFence implements Fence {
  readonly resource: string;
  readonly generation: number;
  readonly token: bigint;

  constructor(resource: string, generation: number, token: bigint) {
    this.resource = resource;
    this.generation = generation;
    this.token = token;
    Object.freeze(this);
  }

  toString(): string {
    return formatFence(this.generation, this.token);
  }

  toJSON(): string {
    return this.toString();
  }
}

/** The owners of fences issued by this process. The class proves nothing: `fence.constructor` gives it to anyone. */
const owners = new WeakMap<Fence, string>();

/** For stores: issues the fence of a new lock. Throws a RangeError for a token out of range. */
export function issueFence(
  resource: string,
  generation: number,
  token: bigint,
  owner: string,
): Fence {
  checkToken(generation, token);
  const fence = new IssuedFence(resource, generation, token);
  owners.set(fence, owner);
  return fence;
}

/** The highest token: the signed 64-bit integers of databases end there. */
const HIGHEST_TOKEN = 2n ** 63n - 1n;

/** Throws a RangeError for a generation or token out of range, such as a corrupted value in a store. */
export function checkToken(generation: number, token: bigint): void {
  checkWhole("generation", generation, 0, HIGHEST_GENERATION);
  if (token < 0n || token > HIGHEST_TOKEN) {
    throw new RangeError(`token must be from 0 to ${HIGHEST_TOKEN}, not ${token}`);
  }
}

/** Returns the store's name for the holder; undefined for a fence that no store of this process issued. */
export function fenceOwner(fence: Fence): string | undefined {
  return owners.get(fence);
}

/**
 * Throws a FenceInvalidError unless `fence` comes from a lock of this process or from `openFence`, and belongs to
 * `resource`.
 *
 * A forged huge token would lock out every later holder, so an object with the same fields is not accepted.
 */
export function checkFence(fence: Fence, resource: string): void {
  if (fenceOwner(fence) === undefined) {
    throw new FenceInvalidError(
      "no lock of this process issued it; pass fences between processes with sealFence and openFence",
    );
  }
  if (fence.resource !== resource) {
    throw new FenceInvalidError("it belongs to another resource");
  }
}

const utf8 = new TextEncoder();

/**
 * Returns the fence as a text that another process accepts through `openFence` with the same secret.
 *
 * The seal is an HMAC-SHA-256 over resource, generation, token and owner. The secret has at least 16 bytes.
 */
export async function sealFence(fence: Fence, secret: string): Promise<string> {
  const owner = fenceOwner(fence);
  if (owner === undefined)
    throw new FenceInvalidError("only a fence issued by a lock can be sealed");
  const text = [encodeURIComponent(fence.resource), fence.toString(), encodeURIComponent(owner)];
  const body = text.join(":");
  const mac = await crypto.subtle.sign("HMAC", await macKey(secret), utf8.encode(body));
  return `${body}:${bytesToHex(new Uint8Array(mac))}`;
}

const SEALED = /^(([^:]+):(\d{10})\.(\d{20}):([^:]+)):([0-9a-f]{64})$/;

/** Returns the fence of a text made by `sealFence`. Rejects with a FenceInvalidError when the seal is wrong. */
export async function openFence(sealed: string, secret: string): Promise<Fence> {
  const key = await macKey(secret);
  const [, body, resource, generation, token, owner, mac] =
    (typeof sealed === "string" && SEALED.exec(sealed)) || [];
  if (!body || !resource || !generation || !token || !owner || !mac) {
    throw new FenceInvalidError("it is not a sealed fence");
  }
  const genuine = await crypto.subtle.verify("HMAC", key, hexToBytes(mac), utf8.encode(body));
  if (!genuine)
    throw new FenceInvalidError("its seal is wrong: it was changed, or sealed with another secret");
  return issueFence(
    decodeURIComponent(resource),
    Number(generation),
    BigInt(token),
    decodeURIComponent(owner),
  );
}

/** Throws unless fences can be sealed with the secret. */
export function checkSecret(secret: unknown): asserts secret is string {
  if (typeof secret !== "string") throw wrongType("the secret", "a string", secret);
  if (byteLength(secret) < 16) throw new RangeError("the secret must have at least 16 bytes");
}

async function macKey(secret: string) {
  checkSecret(secret);
  const algorithm = { name: "HMAC", hash: "SHA-256" };
  return crypto.subtle.importKey("raw", utf8.encode(secret), algorithm, false, ["sign", "verify"]);
}
