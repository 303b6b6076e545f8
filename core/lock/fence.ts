import { bytesToHex, hexToBytes } from "@noble/hashes/utils.js";
import { checkWhole, HIGHEST_GENERATION } from "./checks.ts";
import { FenceInvalidError } from "./errors.ts";

/**
 * The order of a lock's holders, to be checked at the resource together with each guarded write.
 *
 * A holder's fence is greater than that of every earlier holder of the same name, across release, expiry
 * and restart.
 *
 * One lock store per resource: fences of two stores have no order, and nothing here can tell them apart. When
 * locks move to another store, raise its generation above that of the old one first (`raiseGeneration`).
 */
export interface Fence {
  /** The lock's name. */
  readonly resource: string;

  /** Raised by an operator when the source of tokens was rebuilt, so that it comes before the token. */
  readonly generation: number;

  readonly token: bigint;

  /** `generation.token` in fixed width: sorts as text in headers, columns and metadata. */
  toString(): string;
}

/** -1, 0 or 1: whether `a` was issued before, with or after `b`. Throws a TypeError across resources. */
export function compareFence(a: Fence, b: Fence): -1 | 0 | 1 {
  if (a.resource !== b.resource) throw new TypeError("fences of different resources have no order");
  if (a.generation !== b.generation) return a.generation < b.generation ? -1 : 1;
  return a.token === b.token ? 0 : a.token < b.token ? -1 : 1;
}

/** The text of a fence: 10 digits of generation, 20 digits of token, the widths of uint32 and uint64. */
export function formatFence(generation: number, token: bigint): string {
  return `${String(generation).padStart(10, "0")}.${String(token).padStart(20, "0")}`;
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

/** The owners of the fences that were issued here. The class makes nothing genuine: anyone can get at it. */
const owners = new WeakMap<Fence, string>();

/** For stores: the fence of a lock that was just taken. Throws a RangeError for a token that is none. */
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

/** The highest token: SQLite's integers end there. */
const HIGHEST_TOKEN = 2n ** 63n - 1n;

/** Throws a RangeError for what no fence can be made of, however it got into a store. */
export function checkToken(generation: number, token: bigint): void {
  checkWhole("generation", generation, 0, HIGHEST_GENERATION);
  if (token < 0n || token > HIGHEST_TOKEN) {
    throw new RangeError(`token must be from 0 to ${HIGHEST_TOKEN}, not ${token}`);
  }
}

/** What the store that issued the fence calls its holder; undefined for anything that only looks like a fence. */
export function fenceOwner(fence: Fence): string | undefined {
  return owners.get(fence);
}

/**
 * Throws a FenceInvalidError unless `fence` came from a lock of this process, or from `openFence`, and
 * belongs to `resource`.
 *
 * A forged huge token would lock out every later holder, so nothing that merely looks like a fence counts.
 */
export function checkFence(fence: Fence, resource: string): void {
  if (fenceOwner(fence) === undefined) {
    throw new FenceInvalidError("it was not issued by a lock of this process; seal it to carry it");
  }
  if (fence.resource !== resource) {
    throw new FenceInvalidError("it belongs to another resource");
  }
}

const utf8 = new TextEncoder();

/**
 * The fence as a text that another process accepts through `openFence` with the same secret.
 *
 * The seal is an HMAC-SHA-256 over resource, generation, token and owner. The secret has at least 16 bytes.
 */
export async function sealFence(fence: Fence, secret: string): Promise<string> {
  const owner = fenceOwner(fence);
  if (owner === undefined) throw new FenceInvalidError("only a fence issued by a lock is sealed");
  const text = [encodeURIComponent(fence.resource), fence.toString(), encodeURIComponent(owner)];
  const body = text.join(":");
  const mac = await crypto.subtle.sign("HMAC", await macKey(secret), utf8.encode(body));
  return `${body}:${bytesToHex(new Uint8Array(mac))}`;
}

/** The fence of a text made by `sealFence`. Throws a FenceInvalidError when the seal does not fit. */
export async function openFence(sealed: string, secret: string): Promise<Fence> {
  const key = await macKey(secret);
  const [, body, resource, generation, token, owner, mac] =
    /^(([^:]+):(\d{10})\.(\d{20}):([^:]+)):([0-9a-f]{64})$/.exec(sealed) ?? [];
  if (!body || !resource || !generation || !token || !owner || !mac) {
    throw new FenceInvalidError("it is not a sealed fence");
  }
  const genuine = await crypto.subtle.verify("HMAC", key, hexToBytes(mac), utf8.encode(body));
  if (!genuine) throw new FenceInvalidError("its seal does not fit");
  return issueFence(
    decodeURIComponent(resource),
    Number(generation),
    BigInt(token),
    decodeURIComponent(owner),
  );
}

async function macKey(secret: string) {
  const bytes = utf8.encode(secret);
  if (bytes.length < 16) throw new RangeError("the secret must have at least 16 bytes");
  const algorithm = { name: "HMAC", hash: "SHA-256" };
  return crypto.subtle.importKey("raw", bytes, algorithm, false, ["sign", "verify"]);
}
