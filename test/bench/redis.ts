import { createHash, randomUUID } from "node:crypto";
import { Redis as Ioredis } from "ioredis";
import { sum } from "simple-statistics";
import { describeHolder, newHolderId } from "../../core/lock/holder.ts";
import type { LockStore } from "../../core/lock/lock.ts";
import { redisClient } from "../../core/stores/redis/client/open.ts";
import { redisLocks } from "../../core/stores/redis/locks/index.ts";
import { LockKeys } from "../../core/stores/redis/locks/keys.ts";
import { CLAIM, DROP } from "../../core/stores/redis/locks/scripts.ts";
import { startServer } from "../../infra/servers/start.ts";
import { pause } from "../support/until.ts";
import type { Comparison, Contender, Repeated } from "./measure.ts";
import { installPeers, loadPeer } from "./peers.ts";
import { stockOnRedis } from "./redis-stock.ts";
import type { Suite } from "./suite.ts";

const TTL = 60_000;

/** Numbers of waiters, each with its own client. */
const WAITERS = [2, 10, 50, 200] as const;

/** How long each waiter holds the lock, in milliseconds. */
const HOLD = 5;

/** How long commands are counted, in milliseconds. */
const COUNT_MILLIS = 1_000;

/** The part of npm redlock that is used here. */
interface Redlock {
  using(names: string[], millis: number, body: () => Promise<void>): Promise<void>;
}

type RedlockClass = new (
  clients: Ioredis[],
  settings?: { readonly retryCount?: number },
) => Redlock;

/** The usual script: compare and delete. */
const RELEASE = `
  if redis.call("GET", KEYS[1]) == ARGV[1] then return redis.call("DEL", KEYS[1]) end
  return 0
`;

/** Locks and stock on one Redis, compared with raw commands and with npm redlock. */
export const redisSuite: Suite = async (onProgress) => {
  await installPeers(onProgress);
  const { default: Redlock } = await loadPeer<{ readonly default: RedlockClass }>("redlock");
  const server = await startServer("redis", { onProgress });
  const port = Number(new URL(server.url).port);
  const raw = new Ioredis({ port });
  onProgress("connecting");
  const most = Math.max(...WAITERS);
  const ours = Array.from({ length: most }, () =>
    redisLocks(redisClient({ host: "127.0.0.1", port }), { closeRedis: true }),
  );
  const theirs = Array.from({ length: most }, () => new Ioredis({ port }));
  const [store, redlock] = [ours[0] as LockStore, new Redlock([theirs[0] as Ioredis])];
  const sha1 = createHash("sha1").update(RELEASE).digest("hex");
  await raw.script("LOAD", RELEASE);

  const pairs: readonly Contender[] = [
    {
      name: FLOOR,
      async run() {
        const owner = randomUUID();
        await raw.set("bench-raw", owner, "PX", TTL, "NX");
        await raw.evalsha(sha1, 1, "bench-raw", owner);
      },
    },
    {
      name: "redisLocks lock + unlock",
      async run() {
        await (await store.lock("bench", { ttl: TTL, wait: 0 })).unlock();
      },
    },
    { name: SAME_RAW, run: await sameScripts(raw) },
    { name: "redlock using", run: () => redlock.using(["bench-redlock"], TTL, async () => {}) },
  ];
  const queues = WAITERS.flatMap((waiters) => [
    ourQueue(waiters, ours),
    redlockQueue(
      waiters,
      theirs.slice(0, waiters).map((client) => new Redlock([client], { retryCount: -1 })),
    ),
  ]);
  const stock = await stockOnRedis(port);
  onProgress("counting commands");
  const counts: Record<string, number> = {};
  for (const queue of queues)
    counts[`commands per turn: ${queue.name}`] = await perTurn(queue, raw);

  return {
    server: server.version,
    counts,
    contenders: [...pairs, ...queues, ...stock.contenders],
    comparisons: [...COMPARISONS, ...stock.comparisons],
    async close() {
      await stock.close();
      await Promise.all(ours.map((each) => each.close()));
      for (const each of [raw, ...theirs]) each.disconnect();
      await server.stop();
    },
  };
};

const FLOOR = "raw SET NX PX + compare and delete";
const SAME_RAW = "scripts of redisLocks lock + unlock, sent raw";

/** Returns a function that sends the scripts of a lock and an unlock, as redisLocks does. */
async function sameScripts(raw: Ioredis): Promise<() => Promise<void>> {
  for (const { lua } of [CLAIM, DROP]) await raw.script("LOAD", lua);
  const keys = new LockKeys("lockstep");
  const claimed = [...keys.of(["bench-scripts"], "lock", "turn", "fence"), keys.generation];
  const dropped = keys.of(["bench-scripts"], "lock", "turn", "wait");
  return async () => {
    const owner = describeHolder(newHolderId("bench"));
    await raw.evalsha(CLAIM.sha1, claimed.length, ...claimed, owner, TTL, 1, 0);
    await raw.evalsha(DROP.sha1, dropped.length, ...dropped, keys.channels, owner);
  };
}

function queueName(waiters: number): string {
  return `${waiters} waiters, held ${HOLD} ms`;
}

function ourQueue(waiters: number, stores: readonly LockStore[]): Repeated {
  const name = randomUUID();
  return {
    name: queueName(waiters),
    clients: waiters,
    run: (client) =>
      (stores[client] as LockStore).withLock(name, { ttl: TTL, wait: TTL }, () => pause(HOLD)),
  };
}

/** Retries as redlock does, every 200 ms, but without limit: otherwise most attempts fail. */
function redlockQueue(waiters: number, redlocks: readonly Redlock[]): Repeated {
  const name = randomUUID();
  return {
    name: `redlock, ${queueName(waiters)}`,
    clients: waiters,
    run: (client) => (redlocks[client] as Redlock).using([name], TTL, () => pause(HOLD)),
  };
}

/** Returns the number of scripts that the clients send per acquisition. */
async function perTurn({ clients = 1, run }: Repeated, raw: Ioredis): Promise<number> {
  await raw.config("RESETSTAT");
  const endAt = performance.now() + COUNT_MILLIS;
  let turns = 0;
  const client = async (_: unknown, number: number) => {
    for (; performance.now() < endAt; turns += 1) await run(number);
  };
  await Promise.all(Array.from({ length: clients }, client));
  const calls = (await raw.info("commandstats")).matchAll(/^cmdstat_eval(?:sha)?:calls=(\d+)/gm);
  return Number((sum([...calls].map(([, count]) => Number(count))) / turns).toFixed(2));
}

const COMPARISONS: readonly Comparison[] = [
  {
    name: "time of redisLocks lock + unlock over its floor",
    of: "redisLocks lock + unlock",
    over: FLOOR,
    by: "time",
    aim: 1.35,
  },
  {
    name: "time of redisLocks lock + unlock over the same scripts sent raw",
    of: "redisLocks lock + unlock",
    over: SAME_RAW,
    by: "time",
    aim: 1.15,
  },
  {
    name: "rate of redisLocks lock + unlock over redlock using",
    of: "redisLocks lock + unlock",
    over: "redlock using",
    by: "rate",
    aim: 1.1,
  },
  ...WAITERS.flatMap((waiters): Comparison[] => {
    const of = queueName(waiters);
    return [
      { name: `rate of ${of} over redlock`, of, over: `redlock, ${of}`, by: "rate", aim: 1 },
      { name: `fairness of ${of}`, of, by: "fairness", aim: 0.9 },
    ];
  }),
];
