import { createHash, randomUUID } from "node:crypto";
import { Redis as Ioredis } from "ioredis";
import Redlock from "redlock";
import { sum } from "simple-statistics";
import type { LockStore } from "../../core/lock/lock.ts";
import { openRedis, redisStore } from "../../core/stores/redis/index.ts";
import { startServer } from "../../infra/servers/start.ts";
import { pause } from "../support/until.ts";
import type { Comparison, Contender, Repeated } from "./measure.ts";
import type { Suite } from "./suites.ts";

const TTL = 60_000;

/** How many stand in line, each a client of its own. */
const WAITERS = [2, 10, 50, 200] as const;

/** For how long each of them has the lock, in milliseconds. */
const HOLD = 5;

/** For how long commands are counted, in milliseconds. */
const COUNTED = 1_000;

/** Compare and delete, as it is done everywhere. */
const RELEASE = `
  if redis.call("GET", KEYS[1]) == ARGV[1] then return redis.call("DEL", KEYS[1]) end
  return 0
`;

/** Locks on one Redis, against what the server can do, and npm redlock's. */
export const redisSuite: Suite = async (onProgress) => {
  const server = await startServer("redis", { onProgress });
  const port = Number(new URL(server.url).port);
  const raw = new Ioredis({ port });
  onProgress("connecting");
  const most = Math.max(...WAITERS);
  const ours = Array.from({ length: most }, () =>
    redisStore(openRedis({ host: "127.0.0.1", port }), { closeRedis: true }),
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
      name: "redisStore lock + unlock",
      async run() {
        await (await store.lock("bench", { ttl: TTL, wait: 0 })).unlock();
      },
    },
    { name: "redlock using", run: () => redlock.using(["bench-redlock"], TTL, async () => {}) },
  ];
  const lines = WAITERS.flatMap((waiters) => [
    ourLine(waiters, ours),
    redlockLine(waiters, theirs),
  ]);
  onProgress("counting commands");
  const counts: Record<string, number> = {};
  for (const line of lines) counts[`commands per turn: ${line.name}`] = await perTurn(line, raw);

  return {
    server: server.version,
    counts,
    contenders: [...pairs, ...lines],
    comparisons: COMPARISONS,
    async close() {
      await Promise.all(ours.map((each) => each.close()));
      for (const each of [raw, ...theirs]) each.disconnect();
      await server.stop();
    },
  };
};

const FLOOR = "raw SET NX PX + compare and delete";

function lineOf(waiters: number): string {
  return `${waiters} waiters, held ${HOLD} ms`;
}

function ourLine(waiters: number, stores: readonly LockStore[]): Repeated {
  const name = randomUUID();
  return {
    name: lineOf(waiters),
    clients: waiters,
    run: (client) =>
      (stores[client] as LockStore).withLock(name, { ttl: TTL, wait: TTL }, () => pause(HOLD)),
  };
}

/** Its own retry after 200 ms, and no end of it: without that most of them fail. */
function redlockLine(waiters: number, clients: readonly Ioredis[]): Repeated {
  const name = randomUUID();
  const redlocks = clients
    .slice(0, waiters)
    .map((client) => new Redlock([client], { retryCount: -1 }));
  return {
    name: `redlock, ${lineOf(waiters)}`,
    clients: waiters,
    run: (client) => (redlocks[client] as Redlock).using([name], TTL, () => pause(HOLD)),
  };
}

/** How many scripts the clients have sent for each time that one of them had the lock. */
async function perTurn({ clients = 1, run }: Repeated, raw: Ioredis): Promise<number> {
  await raw.config("RESETSTAT");
  const endAt = performance.now() + COUNTED;
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
    name: "time of redisStore lock + unlock over its floor",
    of: "redisStore lock + unlock",
    over: FLOOR,
    by: "time",
    aim: 1.15,
  },
  {
    name: "rate of redisStore lock + unlock over redlock using",
    of: "redisStore lock + unlock",
    over: "redlock using",
    by: "rate",
    aim: 1,
  },
  ...WAITERS.flatMap((waiters): Comparison[] => {
    const of = lineOf(waiters);
    return [
      { name: `rate of ${of} over redlock`, of, over: `redlock, ${of}`, by: "rate", aim: 1 },
      { name: `fairness of ${of}`, of, by: "fairness", aim: 0.9 },
    ];
  }),
];
