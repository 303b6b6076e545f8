import { checkText } from "../lock/checks.ts";
import { type Fence, fenceOwner } from "../lock/fence.ts";

/** Throws unless the prefix of all keys is "" or a text that ends in "/". */
export function checkPrefix(prefix: string): void {
  if (prefix === "") return;
  checkText("prefix", prefix, 200);
  if (!prefix.endsWith("/")) throw new RangeError('the prefix of keys must end in "/"');
}

/**
 * The prefix under which the contenders for a lock queue.
 *
 * The name is one segment, so that `a` is never a part of `a/b`. What has neither "/" nor "%" is left as it is.
 */
export function queueOf(prefix: string, name: string): string {
  return `${prefix}${encodeSegment(name)}/`;
}

/** The name whose queue a key stands in; undefined for a key that stands in none. */
export function nameOf(prefix: string, key: string): string | undefined {
  const [segment, place, ...more] = key.slice(prefix.length).split("/");
  const isQueued = segment && place && more.length === 0 && /^[0-9a-f]{1,16}$/.test(place);
  return isQueued && isSegment(segment) ? decodeSegment(segment) : undefined;
}

/** A key of our own that is in no lock's queue, since no name is encoded to such a first segment. */
export function ownKey(prefix: string, ...segments: readonly string[]): string {
  return [`${prefix}%lockstep`, ...segments.map(encodeSegment)].join("/");
}

export function encodeSegment(text: string): string {
  return text.replace(/[%/]/g, (char) => (char === "%" ? "%25" : "%2F"));
}

export function decodeSegment(segment: string): string {
  return segment.replace(/%2F|%25/g, (code) => (code === "%25" ? "%" : "/"));
}

function isSegment(segment: string): boolean {
  return !/%(?!2F|25)/.test(segment);
}

const OWNER = "etcd:";

/** The owner of a fence whose token is the create revision of this key. */
export function ownerByKey(key: string): string {
  return OWNER + key;
}

/** The lock's own key, where the fence was issued by a lock in etcd: its create revision is the token. */
export function keyOfFence(fence: Fence): string | undefined {
  const owner = fenceOwner(fence);
  return owner?.startsWith(OWNER) ? owner.slice(OWNER.length) : undefined;
}
