import type { Millis } from "../../lock/time.ts";
import type { Node, Zxid } from "../../zookeeper/zookeeper.ts";

/** What stands in the nodes of our locks, for humans and for `inspect`. */
export interface LockRecord {
  readonly holder: string;

  /** The timeout of the session that owns the node. ZooKeeper tells nobody how much of it is left. */
  readonly ttl: Millis | undefined;

  /** The fencing token, where it is not the node's own czxid: the node was moved to another session. */
  readonly token: Zxid | undefined;
}

export function encodeRecord({ holder, ttl, token }: LockRecord): string {
  return JSON.stringify({ holder, ttl, ...(token !== undefined && { token: String(token) }) });
}

/** Of a node that others have made, there is the text in it, or its session. */
export function decodeRecord({ data, stat }: Node): LockRecord {
  try {
    const { holder, ttl, token } = JSON.parse(data);
    if (typeof holder === "string" && typeof ttl === "number") {
      return { holder, ttl, token: token === undefined ? undefined : BigInt(token) };
    }
  } catch {
    // It is not one of ours.
  }
  const isText = /^[^\p{Cc}\ufffd]{1,200}$/u.test(data);
  const holder = isText ? data : `session 0x${BigInt.asUintN(64, stat.owner).toString(16)}`;
  return { holder, ttl: undefined, token: undefined };
}
