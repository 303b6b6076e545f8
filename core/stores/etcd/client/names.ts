import { checkText } from "../../../lock/checks.ts";
import { quote } from "../../../lock/errors.ts";
import { type Fence, fenceOwner } from "../../../lock/fence.ts";

/** Throws unless the prefix of all keys is "" or ends in "/". */
export function checkPrefix(prefix: string): void {
  if (prefix === "") return;
  checkText("prefix", prefix, 200);
  if (!prefix.endsWith("/")) throw new RangeError('the prefix of keys must end in "/"');
}

/** The first segment of the keys of our own records. */
const OWN = "%lockstep";

/**
 * Returns the prefix of the contenders' keys: the literal name, as in Go and etcdctl.
 *
 * Throws a RangeError for a name with the segment of our own records, which would block the queue for ever.
 */
export function queueOf(prefix: string, name: string): string {
  if (isOwn(name))
    throw new RangeError(`lock name ${quote(name)} must not have a segment "${OWN}"`);
  return `${prefix}${name}/`;
}

/** Whether a key under the queue's prefix is that of a contender. `a/b/1f` is under `a/`, but contends for `a/b`. */
export function isIn(queue: string, key: string): boolean {
  return !key.includes("/", queue.length);
}

/** Returns the name of the queue that a key is in; undefined for a key in no queue. */
export function nameOf(prefix: string, key: string): string | undefined {
  const name = /^(.+)\/[0-9a-f]{1,16}$/s.exec(key.slice(prefix.length))?.[1];
  return name === undefined || isOwn(name) ? undefined : name;
}

/** Returns a key of our own records, which is in no lock's queue. */
export function ownKey(prefix: string, ...segments: readonly string[]): string {
  return [prefix + OWN, ...segments.map(encodeSegment)].join("/");
}

/** Returns the last possible key of the own records that the key is among; any other key is returned as it is. */
export function pastOwnRecords(key: string): string {
  const [folder] = /^(?:.*?\/)?%lockstep\//s.exec(key) ?? [];
  return folder === undefined ? key : `${folder}\u{10ffff}`;
}

function isOwn(name: string): boolean {
  return name.split("/").includes(OWN);
}

function encodeSegment(text: string): string {
  return text.replace(/[%/]/g, (char) => (char === "%" ? "%25" : "%2F"));
}

export function decodeSegment(segment: string): string {
  return segment.replace(/%2F|%25/g, (code) => (code === "%25" ? "%" : "/"));
}

const OWNER = "etcd:";

/** Returns the owner of a fence whose token is the create revision of this key. */
export function ownerByKey(key: string): string {
  return OWNER + key;
}

/** Returns the key of the lock, whose create revision is the token; undefined for a fence from another store. */
export function keyOfFence(fence: Fence): string | undefined {
  const owner = fenceOwner(fence);
  return owner?.startsWith(OWNER) ? owner.slice(OWNER.length) : undefined;
}
