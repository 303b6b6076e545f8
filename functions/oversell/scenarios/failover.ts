import { keyOf, PREFIX } from "../../../core/stores/redis/client/names.ts";
import { redisClient } from "../../../core/stores/redis/client/open.ts";
import type { Redis } from "../../../core/stores/redis/client/redis.ts";
import { redisLocks } from "../../../core/stores/redis/locks/index.ts";
import { freePort } from "../../../infra/servers/processes.ts";
import type { ServerNode } from "../../../infra/servers/server.ts";
import type { Scenario, Variant } from "./scenario.ts";
import type { ScenarioShop } from "./scenario-shop.ts";

interface Failover extends Variant {
  /** The number of replicas that must acknowledge the lock. */
  readonly replicas?: number;

  /** Whether tokens are above the servers' clocks, as after a clock step: then both servers issue the same token. */
  readonly isAboveClocks?: boolean;
}

/** A token above every clock, in microseconds. */
const ABOVE_CLOCKS = 2n ** 60n;

/** A primary dies before its replica has received a granted lock. */
export const FAILOVER: Scenario<Failover> = {
  name: "failover",
  story:
    "A Redis primary is cut off from its replica, grants the lock and is killed. The replica is promoted " +
    "(REPLICAOF NO ONE). A second client requests the same lock from it.",
  server: "redis-replica",
  variants: [
    {
      name: "lock alone",
      guard: "by-hand",
      why: "The replica did not have the lock and granted it to the second client: both holders sold the whole stock.",
    },
    {
      name: "claimed fence, conditional decrement",
      guard: "fenced",
      why: "Two clients hold the lock, but the second one claimed the stock first, so the first one's sales were refused.",
    },
    {
      name: "the same, with equal fences",
      guard: "fenced",
      isAboveClocks: true,
      why: "The replica continued the primary's count, so the fences are equal: the stock accepted only the first claim.",
    },
    {
      name: "lock alone, with replicas=1",
      guard: "by-hand",
      replicas: 1,
      why: "WAIT reported no acknowledgement, so the first client did not get the lock. WAIT is no proof: a replica without the lock may be promoted even if another one has acknowledged it.",
    },
  ],

  async play(variant, shop, [primary, replica]) {
    const [old, promoted] = [connect(primary), connect(replica)];
    try {
      if (variant.isAboveClocks) await setToken(ABOVE_CLOCKS, shop, old);
      // A port without a listener: the replica is cut off from its primary.
      await promoted.call(["REPLICAOF", "127.0.0.1", await freePort()]);
      await shop.acquire(redisLocks(old, { replicas: variant.replicas ?? 0, replicaTimeout: 500 }));
      await primary?.kill("SIGKILL");
      await promoted.call(["REPLICAOF", "NO", "ONE"]);
      await shop.acquire(redisLocks(promoted));
    } finally {
      // The clients, not the stores: stores would keep trying to release locks on a dead server.
      await Promise.all([old.close(), promoted.close()]);
    }
  },
};

/** Opens a client of one server. */
export function connect(node: ServerNode | undefined): Redis {
  return redisClient({ host: "127.0.0.1", port: node?.config.port ?? 0 });
}

/** Sets the last token on both servers. */
async function setToken(token: bigint, { lock }: ScenarioShop, primary: Redis): Promise<void> {
  await primary.call(["SET", keyOf(PREFIX, "fence", lock), String(token)]);
  await primary.call(["WAIT", 1, 2_000]);
}
