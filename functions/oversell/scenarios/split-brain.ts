import { redisLocks } from "../../../core/stores/redis/locks/index.ts";
import { freePort } from "../../../infra/servers/processes.ts";
import { connect } from "./failover.ts";
import type { Scenario, Variant } from "./scenario.ts";

interface SplitBrain extends Variant {
  /** The number of replicas that must acknowledge the lock on the old primary. */
  readonly replicas?: number;

  /** Whether the client of the old primary gets its lock after the other client. */
  readonly isOldLast?: boolean;
}

/** A replica is promoted while the old primary continues to serve its clients. */
export const SPLIT_BRAIN: Scenario<SplitBrain> = {
  name: "split-brain",
  story:
    "A Redis primary is cut off from its replica, and the replica is promoted (REPLICAOF NO ONE). Nobody stops the old " +
    "primary: each of the two masters grants the lock to its own client.",
  server: "redis-replica",
  variants: [
    {
      name: "lock alone",
      guard: "by-hand",
      why: "Each client holds the lock of its own master, and no master knows of the other: both holders sold the whole stock.",
    },
    {
      name: "claimed fence, conditional decrement",
      guard: "fenced",
      why: "Two clients hold the lock, but the second one claimed the stock first, so the first one's sales were refused.",
    },
    {
      name: "the same, the old primary's client last",
      guard: "fenced",
      isOldLast: true,
      why: "The stock does not know which master is the right one. It accepts the holder with the newest fence, and only that one.",
    },
    {
      name: "lock alone, with replicas=1",
      guard: "by-hand",
      replicas: 1,
      why: "The old primary has lost its replica, so WAIT reported no acknowledgement, and its client did not get the lock.",
    },
  ],

  async play({ replicas = 0, isOldLast = false }, shop, [primary, replica]) {
    const [old, promoted] = [connect(primary), connect(replica)];
    try {
      // A port without a listener: the replica is cut off from its primary.
      await promoted.call(["REPLICAOF", "127.0.0.1", await freePort()]);
      await promoted.call(["REPLICAOF", "NO", "ONE"]);
      const stores = [redisLocks(old, { replicas, replicaTimeout: 500 }), redisLocks(promoted)];
      for (const store of isOldLast ? stores.reverse() : stores) await shop.acquire(store);
    } finally {
      await Promise.all([old.close(), promoted.close()]);
    }
  },
};
