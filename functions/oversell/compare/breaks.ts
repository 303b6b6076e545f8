import { sleep } from "../../../core/lock/abort.ts";
import { hasCode } from "../../../core/lock/errors.ts";
import type { Lock } from "../../../core/lock/lock.ts";
import { isHeld } from "../../../core/lock/lock-handle.ts";
import type { Millis } from "../../../core/lock/time.ts";
import { stepClock, steppableClock } from "../../../infra/clock/clock.ts";
import type { AnyStore } from "../../../infra/open.ts";
import { openReady } from "../../../infra/open-ready.ts";
import { KINDS, type ServerName } from "../../../infra/servers/kinds.ts";
import type { Server } from "../../../infra/servers/server.ts";
import type { ServerKind } from "../../../infra/servers/server-kind.ts";
import type { StartOptions } from "../../../infra/servers/start.ts";

/**
 * The fate of a lock whose holder was alive: `held`; `lost`, which the holder knew when another client asked; `two`,
 * another client got it while the holder still counted on it; `away`, the store did not answer.
 */
export type BreakResult = "held" | "lost" | "two" | "away";

export type BreakName = "crash" | "failover" | "clock" | "memory";

interface Break {
  appliesTo(name: ServerName): boolean;

  /** Returns the environment of the server processes. */
  env?(onProgress: (step: string) => void): Promise<NonNullable<StartOptions["env"]>>;
  play(server: Server): Promise<BreakResult>;
}

/** Longer than the lease of each lock. */
const CLOCK_STEP: Millis = 60_000;

/** Time for the other servers of a cluster to replace one. */
const ELECTION: Millis = 5_000;

export const BREAKS: Readonly<Record<BreakName, Break>> = {
  /** All servers are killed at once, and started again with what is on their disks. */
  crash: {
    // DynamoDB Local keeps its tables in memory: the result would say nothing of Amazon's service.
    appliesTo: (name) => name !== "dynamodb",
    play: (server) =>
      afterBreaking(server, async () => {
        await Promise.all(server.nodes.map((node) => node.kill("SIGKILL")));
        await Promise.all(server.nodes.map((node) => node.start()));
      }),
  },

  /** One server after another is killed and, when the others have had time to replace it, started again. */
  failover: {
    appliesTo: (name) => KINDS[name].size >= 3,
    play: (server) =>
      afterBreaking(server, async () => {
        for (const node of server.nodes) {
          await node.kill("SIGKILL");
          await sleep(ELECTION);
          await node.start();
        }
      }),
  },

  /** The clocks of all servers are stepped forward. */
  clock: {
    appliesTo: (name) => (KINDS[name] as ServerKind).hasWallClock === true,
    env: steppableClock,
    play: (server) =>
      afterBreaking(server, async () => {
        await Promise.all(server.nodes.map((node) => stepClock(node, CLOCK_STEP)));
      }),
  },

  /** The memory is used up, and `allkeys-lru` makes room. */
  memory: {
    appliesTo: (name) => name === "redis",
    play: (server) =>
      afterBreaking(server, async ({ redis }) => {
        await redis.call(["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]);
        await redis.call(["CONFIG", "SET", "maxmemory", "4mb"]);
        const value = "x".repeat(100_000);
        // Redis evicts the oldest of a few keys that it picks at random: of so many, the lock's key is one.
        for (let i = 0; i < 400; i += 1) await redis.call(["SET", `page-${i}`, value]);
      }),
  },
};

const NAME = "held";
const OPTIONS = { ttl: 40_000, wait: 5_000 };

/** Takes the lock, breaks the servers, and requests the lock with a second client. */
async function afterBreaking(
  { url }: Server,
  breakServers: (store: AnyStore) => Promise<void>,
): Promise<BreakResult> {
  const first = await openReady(url);
  try {
    const held = await first.locks.lock(NAME, OPTIONS);
    await breakServers(first);
    return await requestAgain(url, held);
  } finally {
    await first.close();
  }
}

async function requestAgain(url: string, held: Lock): Promise<BreakResult> {
  await using second = await openReady(url);
  try {
    await second.locks.lock(NAME, OPTIONS);
    return isHeld(held) ? "two" : "lost";
  } catch (error) {
    if (hasCode(error, "LOCK_TIMEOUT")) return isHeld(held) ? "held" : "lost";
    if (hasCode(error, "STORE_UNAVAILABLE", "UNKNOWN_OUTCOME")) return "away";
    throw error;
  }
}
