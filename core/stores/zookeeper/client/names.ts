import { checkText } from "../../../lock/checks.ts";
import { quote } from "../../../lock/errors.ts";
import type { Path } from "./zookeeper.ts";

/** The characters that ZooKeeper refuses (PathUtils.validatePath). */
const REFUSED = String.raw`[\u0000-\u001f\u007f-\u009f\ue000-\uf8ff\ufff0-\uffff\u{10000}-\u{10ffff}]`;
const HAS_REFUSED = new RegExp(REFUSED, "u");
const TO_ENCODE = new RegExp(`%(?=[0-9A-F]{2}|lockstep$)|${REFUSED}`, "gu");

/** Throws unless the ancestor of all nodes is "", for the root, or a path. */
export function checkRoot(root: string): void {
  if (root !== "") checkPath("root", root, '"" or a path such as "/shop/locks"');
}

/** Throws unless ZooKeeper takes the path, which the servers' own refusal does not name. */
export function checkPath(what: string, path: unknown, expected: string): asserts path is Path {
  checkText(what, path, 1_000);
  const hasSegments = path.startsWith("/") && path.slice(1).split("/").every(isSegment);
  if (hasSegments && !HAS_REFUSED.test(path)) return;
  const others = 'without empty segments, ".", "..", control characters and emoji';
  throw new RangeError(`${what} ${quote(path)} must be ${expected}, ${others}`);
}

function isSegment(segment: string): boolean {
  return segment !== "" && segment !== "." && segment !== "..";
}

/**
 * Returns the parent of the contenders' nodes: the literal name, as for Curator's users.
 *
 * Only names that ZooKeeper refuses are encoded: segments that are empty, "." or "..", control characters, characters above
 * U+D7FF (PathUtils.validatePath), and ZooKeeper's own node in the root. "%" is encoded where it looks like a code.
 */
export function queueOf(root: Path, name: string): Path {
  const path = name.split("/").map(encodeSegment).join("/");
  const isReserved = root === "" && /^zookeeper(\/|$)/.test(path);
  return `${root}/${isReserved ? path.replace("z", "%7A") : path}`;
}

/** Returns the name of the queue at a path; undefined for a path that is not the encoding of a name. */
export function nameOf(root: Path, path: Path): string | undefined {
  try {
    const segments = path.slice(root.length + 1).split("/");
    const name = segments.map(decodeSegment).join("/");
    return queueOf(root, name) === path ? name : undefined;
  } catch {
    return undefined;
  }
}

/** Returns the path of a node of our own records, which is not the encoding of any name. */
export function ownPath(root: Path, segment: string): Path {
  return `${root}/%lockstep/${segment}`;
}

/** The encoding of an empty segment: no other segment contains "/". */
const EMPTY = "%2F";

function encodeSegment(segment: string): string {
  if (segment === "") return EMPTY;
  if (!isSegment(segment)) return segment.replace(".", "%2E");
  return segment.replace(TO_ENCODE, encodeURIComponent);
}

function decodeSegment(segment: string): string {
  return segment === EMPTY ? "" : segment.replace(/(%[0-9A-F]{2})+/g, decodeURIComponent);
}

/** Returns the path of the node's parent; "" for a node in the root. */
export function parentOf(path: Path): Path {
  return path.slice(0, path.lastIndexOf("/"));
}
