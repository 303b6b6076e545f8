import { checkText } from "../lock/checks.ts";
import type { Path } from "./zookeeper.ts";

/** Throws unless the folder of all nodes is "", for the root, or a path. */
export function checkRoot(root: string): void {
  if (root === "") return;
  checkText("root", root, 1_000);
  const isPath = root.startsWith("/") && root.slice(1).split("/").every(isSegment);
  if (!isPath) throw new RangeError('the root must be "" or a path such as "/shop/locks"');
}

function isSegment(segment: string): boolean {
  return segment !== "" && segment !== "." && segment !== "..";
}

/** The node below which the contenders for a lock queue. */
export function queueOf(root: Path, name: string): Path {
  return `${root}/${encodeSegment(name)}`;
}

/** A node of our own, which no lock's name is encoded to. */
export function ownPath(root: Path, segment: string): Path {
  return `${root}/%lockstep/${segment}`;
}

/**
 * A name as one segment of a path: printable ASCII is left as it is, but for "/" and "%". ZooKeeper takes neither
 * "." nor "..", no control characters and nothing above U+FFFF, and has put a folder of its own into the root.
 */
export function encodeSegment(name: string): string {
  const segment = name.replace(/[^ -~]|[%/]/gu, encodeURIComponent);
  return [".", "..", "zookeeper"].includes(segment)
    ? `%${segment.charCodeAt(0).toString(16).toUpperCase()}${segment.slice(1)}`
    : segment;
}

/** Undefined for what no name is encoded to. */
export function decodeSegment(segment: string): string | undefined {
  try {
    const name = decodeURIComponent(segment);
    return encodeSegment(name) === segment ? name : undefined;
  } catch {
    return undefined;
  }
}

/** The path of the node's parent; "" for a node in the root. */
export function parentOf(path: Path): Path {
  return path.slice(0, path.lastIndexOf("/"));
}
