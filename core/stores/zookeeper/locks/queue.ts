import {
  NodeExistsError,
  NoNodeError,
  type Path,
  type ZooKeeperSession,
} from "../client/zookeeper.ts";

/**
 * Makes the unique name of a contender's node, before the ten digits of its sequence. Curator and the recipe of ZooKeeper
 * read such names too, so that their contenders and ours share a queue.
 */
export function newNodePrefix(): string {
  return `_c_${crypto.randomUUID()}-lock-`;
}

/** Returns the prefix of a node of `newNodePrefix`; undefined for another node. */
export function prefixOf(path: Path): string | undefined {
  return /\/(_c_[0-9a-f-]{36}-lock-)-?\d{9,10}$/.exec(path)?.[1];
}

/** The beginning of the names of Curator's, ZooKeeper's own and our contenders' nodes. */
const CONTENDER = /^(_c_[0-9a-f-]{36}-|x--?\d+-)/;

/**
 * Resolves to the contenders in a queue, the earliest first. Nodes of nested names are skipped: no session owns them. Only a
 * child that ends in a sequence number, and does not begin as a contender's node does, has to be read to tell.
 */
export async function contendersIn(
  session: ZooKeeperSession,
  queue: Path,
  children: readonly string[],
  signal?: AbortSignal,
): Promise<readonly string[]> {
  const sorted = sortedBySequence(children);
  if (sorted.every((name) => CONTENDER.test(name))) return sorted;
  const checks = sorted.map(async (name) => {
    if (CONTENDER.test(name)) return true;
    const node = await session.read(`${queue}/${name}`, { ...(signal && { signal }) });
    return node !== undefined && node.stat.owner !== 0n;
  });
  const isContender = await Promise.all(checks);
  return sorted.filter((_, i) => isContender[i]);
}

/** Returns the children that end in a sequence number, in the order of these numbers. */
export function sortedBySequence(children: readonly string[]): readonly string[] {
  const contenders: { readonly name: string; readonly sequence: number }[] = [];
  for (const name of children) {
    const sequence = sequenceOf(name);
    if (sequence !== undefined) contenders.push({ name, sequence });
  }
  return contenders.sort((a, b) => distance(a.sequence, b.sequence)).map(({ name }) => name);
}

/** Returns the children with a lower sequence number than the child `name` has. */
export function childrenBefore(children: readonly string[], name: string): readonly string[] {
  const ours = sequenceOf(name) ?? Number.NaN;
  return children.filter((child) => {
    const sequence = sequenceOf(child);
    return sequence !== undefined && distance(sequence, ours) < 0;
  });
}

/** Sequence numbers have 32 bits and wrap around to negative ones; a queue never spans half of the range. */
function distance(sequence: number, other: number): number {
  return (sequence - other) | 0;
}

/**
 * The number at the end of a name, which Java writes with ten characters at least, its minus included. A negative number of
 * ten digits has a dash before its minus.
 */
function sequenceOf(name: string): number | undefined {
  const digits = name.slice(-10);
  if (/^-\d{9}$/.test(digits)) return Number(digits);
  if (!/^\d{10}$/.test(digits)) return undefined;
  return name.endsWith("--", name.length - 10) ? -Number(digits) : Number(digits);
}

/** Creates a queue unless it exists. ZooKeeper deletes the container some time after its last child. */
export function createQueue(
  session: ZooKeeperSession,
  path: Path,
  signal?: AbortSignal,
): Promise<void> {
  return unlessExists(session.create({ path, mode: "container" }, signal));
}

/** Creates a node and its ancestors unless they exist. Nodes below `root` are containers, as queues are. */
export async function createPath(
  session: ZooKeeperSession,
  path: Path,
  { root = path, signal }: { readonly root?: Path; readonly signal: AbortSignal },
): Promise<void> {
  const segments = path.split("/").slice(1);
  for (let depth = 1; depth <= segments.length; depth += 1) {
    const ancestor = `/${segments.slice(0, depth).join("/")}`;
    const mode = ancestor.length > root.length ? "container" : "persistent";
    await unlessExists(session.create({ path: ancestor, mode }, signal));
  }
}

async function unlessExists(creating: Promise<unknown>): Promise<void> {
  try {
    await creating;
  } catch (error) {
    if (!(error instanceof NodeExistsError)) throw error;
  }
}

export async function removeIfThere(
  session: ZooKeeperSession,
  path: Path,
  signal?: AbortSignal,
): Promise<void> {
  try {
    await session.remove(path, signal);
  } catch (error) {
    if (!(error instanceof NoNodeError)) throw error;
  }
}
