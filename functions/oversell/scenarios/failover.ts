import { keyOf, PREFIX } from "../../../core/redis/names.ts";
import { openRedis, type Redis, redisStore } from "../../../core/stores/redis/index.ts";
import type { ServerNode } from "../../../infra/servers/node.ts";
import { freePort } from "../../../infra/servers/processes.ts";
import type { Scenario, Variant } from "./scenario.ts";
import type { Stand } from "./stand.ts";

interface Failover extends Variant {
  /** Of how many replicas the lock waits to hear that they have it. */
  readonly replicas?: number;

  /** Whether tokens are above the servers' clocks, as they are once a clock was ahead: then both count alike. */
  readonly isAboveClocks?: boolean;
}

/** Above every clock, in microseconds. */
const ABOVE_CLOCKS = 2n ** 60n;

/** A primary dies before its replica has heard of the lock that it granted. */
export const FAILOVER: Scenario<Failover> = {
  name: "failover",
  story:
    "A Redis primary is cut off from its replica, grants the lock and is killed. The replica is promoted " +
    "(REPLICAOF NO ONE), and somebody else asks it for the same lock.",
  server: "redis-replica",
  variants: [
    {
      name: "lock alone",
      guard: "by-hand",
      why: "The replica had not heard of the first lock and gave it to a second holder: both sold all they saw.",
    },
    {
      name: "claimed fence, conditional decrement",
      guard: "fenced",
      why: "There are two holders all the same, but once the second one had come to the stock, the first one was late.",
    },
    {
      name: "the same, with equal fences",
      guard: "fenced",
      isAboveClocks: true,
      why: "The replica counted on from where the primary did, so the fences are equal: who came to the stock first was alone there.",
    },
    {
      name: "lock alone, with replicas=1",
      guard: "by-hand",
      replicas: 1,
      why: "WAIT told that no replica had the lock, so the first one did not get it. It is no proof: a replica that has not said so may still be promoted.",
    },
  ],

  async play(variant, stand, [primary, replica]) {
    const [old, promoted] = [connect(primary), connect(replica)];
    try {
      if (variant.isAboveClocks) await countFrom(ABOVE_CLOCKS, stand, old);
      // To a port where nobody listens: the network between the two is cut.
      await promoted.call(["REPLICAOF", "127.0.0.1", await freePort()]);
      await stand.enter(redisStore(old, { replicas: variant.replicas ?? 0, replicaTimeout: 500 }));
      await primary?.kill("SIGKILL");
      await promoted.call(["REPLICAOF", "NO", "ONE"]);
      await stand.enter(redisStore(promoted));
    } finally {
      // Not the stores: they would go on trying to give locks back to a server that is gone.
      await Promise.all([old.close(), promoted.close()]);
    }
  },
};

function connect(node: ServerNode | undefined): Redis {
  return openRedis({ host: "127.0.0.1", port: node?.place.port ?? 0 });
}

/** On both servers. */
async function countFrom(token: bigint, { lock }: Stand, primary: Redis): Promise<void> {
  await primary.call(["SET", keyOf(PREFIX, "fence", lock), String(token)]);
  await primary.call(["WAIT", 1, 2_000]);
}
