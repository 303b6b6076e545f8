import type { ZooKeeperSession } from "../client/zookeeper.ts";
import { prefixOf, removeIfThere } from "./queue.ts";

/** The prefixes of the nodes that each session may own. */
const PREFIXES = new WeakMap<ZooKeeperSession, Set<string>>();

/**
 * Keeps the nodes of a session that begin with this prefix. Its other nodes in queues are removed whenever the session has
 * a new connection: a server that rejoins after a crash may bring back deleted ones (ZOOKEEPER-5010), which would hold
 * their locks for as long as the session lives.
 */
export function keepNodes(session: ZooKeeperSession, prefix: string): void {
  const known = PREFIXES.get(session);
  const prefixes = known ?? new Set();
  prefixes.add(prefix);
  if (known) return;
  PREFIXES.set(session, prefixes);
  session.onReconnect(() => removeOthers(session, prefixes));
}

/** Has no more nodes with this prefix. */
export function forgetNodes(session: ZooKeeperSession, prefix: string): void {
  PREFIXES.get(session)?.delete(prefix);
}

async function removeOthers(session: ZooKeeperSession, kept: ReadonlySet<string>): Promise<void> {
  for (const path of await session.ephemerals()) {
    const prefix = prefixOf(path);
    if (prefix !== undefined && !kept.has(prefix)) await removeIfThere(session, path);
  }
}
