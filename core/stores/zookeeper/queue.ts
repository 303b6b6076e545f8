import type { Millis } from "../../lock/time.ts";
import {
  NodeExistsError,
  NoNodeError,
  type Path,
  type Session,
} from "../../zookeeper/zookeeper.ts";

/**
 * The name of a contender's node, before the ten digits of its sequence: as Curator and the recipe of
 * ZooKeeper itself read them, so that they all stand in one line. Its id is never used again.
 */
export function newMark(): string {
  return `_c_${crypto.randomUUID()}-lock-`;
}

/** The contenders in a queue, first come first. What has no sequence stands in no line. */
export function inLine(children: readonly string[]): readonly string[] {
  const contenders = children.flatMap((name) => {
    const sequence = sequenceOf(name);
    return sequence === undefined ? [] : [{ name, sequence }];
  });
  // They are 32 bits wide and go on below zero; a queue never spans half of that.
  return contenders.sort((a, b) => (a.sequence - b.sequence) | 0).map(({ name }) => name);
}

/** The digits at the end; a minus has a dash before it. */
function sequenceOf(name: string): number | undefined {
  const [, minus, digits] = /(?:-(-))?(\d{10})$/.exec(name) ?? [];
  if (digits === undefined) return undefined;
  return minus === undefined ? Number(digits) : -Number(digits);
}

/**
 * Makes a queue where there is none. It is a container: ZooKeeper deletes it some time after the last of those who
 * stood in it has left.
 */
export function makeQueue(session: Session, path: Path, signal?: AbortSignal): Promise<void> {
  return unlessItExists(session.create({ path, mode: "container" }, signal));
}

/** Makes a node, and all above it, unless they are there. */
export async function makeFolder(
  session: Session,
  path: Path,
  signal?: AbortSignal,
): Promise<void> {
  const segments = path.split("/").slice(1);
  for (let depth = 1; depth <= segments.length; depth += 1) {
    const folder = `/${segments.slice(0, depth).join("/")}`;
    await unlessItExists(session.create({ path: folder }, signal));
  }
}

/** An answer that was lost is as good: whether it is there shows when it is used. */
async function unlessItExists(making: Promise<unknown>): Promise<void> {
  try {
    await making;
  } catch (error) {
    if (!(error instanceof NodeExistsError)) throw error;
  }
}

export async function removeIfThere(
  session: Session,
  path: Path,
  signal?: AbortSignal,
): Promise<void> {
  try {
    await session.remove(path, signal);
  } catch (error) {
    if (!(error instanceof NoNodeError)) throw error;
  }
}

/** How often one looks without being told: a watch stands as long as its connection, whose end is told. */
export const NEVER: Millis = Number.POSITIVE_INFINITY;
