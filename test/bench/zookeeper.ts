import { randomUUID } from "node:crypto";
import type { LockStore } from "../../core/lock/lock.ts";
import { zookeeperClient } from "../../core/stores/zookeeper/client/client.ts";
import type { ZooKeeperSession } from "../../core/stores/zookeeper/client/zookeeper.ts";
import { zookeeperLocks } from "../../core/stores/zookeeper/locks/index.ts";
import { startServer } from "../../infra/servers/start.ts";
import { faulty } from "../support/faulty-zookeeper.ts";
import { pause } from "../support/until.ts";
import { toZooKeeperServer } from "../support/zookeeper-servers.ts";
import { toReporter } from "./hand-over.ts";
import type { Comparison, Contender, Repeated } from "./measure.ts";
import type { Suite } from "./suite.ts";

const OPTIONS = { ttl: 60_000, wait: 60_000 };

/** Numbers of waiters, each with its own session. */
const WAITERS = [2, 10, 50, 200] as const;

/** How long each waiter holds the lock, in milliseconds. */
const HOLD = 5;

/** Time for a waiter to enqueue, or for a watch to start, in milliseconds: a multiple of the time needed. */
const SETTLE = 10;

const ROOT = "/bench";

/** Locks in ZooKeeper, compared with the requests of the lock recipe. */
export const zookeeperSuite: Suite = async (onProgress) => {
  const server = await startServer("zookeeper", { onProgress });
  const zookeeper = zookeeperClient(toZooKeeperServer(server));
  const counted = faulty(zookeeper);
  const session = await zookeeper.openSession(OPTIONS.ttl);
  onProgress("opening sessions");
  const stores = await Promise.all(
    Array.from({ length: Math.max(...WAITERS) }, async () => {
      const store = zookeeperLocks(counted.zookeeper, { root: ROOT });
      await (await store.lock(randomUUID(), OPTIONS)).unlock();
      return store;
    }),
  );
  await session.create({ path: `${ROOT}/raw` });
  const [one, other] = stores as [LockStore, LockStore, ...LockStore[]];

  onProgress("counting requests");
  const notes: string[] = [];
  for (const waiters of WAITERS) {
    const queue = handOvers(stores.slice(0, waiters), HOLD);
    await queue.run(0);
    const before = counted.calls.length;
    await Promise.all(stores.slice(0, waiters).map((_, client) => queue.run(client)));
    const perHandOver = ((counted.calls.length - before) / waiters).toFixed(1);
    notes.push(`${perHandOver} requests per hand-over among ${waiters} waiters`);
  }

  const contenders: readonly Contender[] = [
    {
      name: RAW,
      async run() {
        const path = `${ROOT}/raw/x-`;
        const node = await session.create({ path, mode: "sequential" });
        await session.children(`${ROOT}/raw`);
        await session.remove(node.path);
      },
    },
    {
      name: PAIR,
      async run() {
        await (await one.lock("pair", OPTIONS)).unlock();
      },
    },
    ...WAITERS.flatMap((waiters) =>
      [0, HOLD].map((hold) => handOvers(stores.slice(0, waiters), hold)),
    ),
    deleteToEvent(session),
    toReporter(NEXT, async () => {
      const name = randomUUID();
      const holder = await one.lock(name, OPTIONS);
      const locked = other.lock(name, OPTIONS);
      await pause(SETTLE);
      const sentAt = performance.now();
      await holder.unlock();
      const lock = await locked;
      const lockedAt = performance.now();
      await lock.unlock();
      return lockedAt - sentAt;
    }),
  ];
  return {
    server: server.version,
    notes,
    contenders,
    comparisons: COMPARISONS,
    async close() {
      await Promise.all(stores.map((store) => store.close()));
      await zookeeper.close();
      await server.stop();
    },
  };
};

const RAW = "raw create + getChildren + delete";
const PAIR = "zookeeperLocks lock + unlock";
const FLOOR = "delete to event";
const NEXT = "unlock to the next owner";

function queueName(waiters: number, hold = 0): string {
  return `hand-overs, ${waiters} waiters${hold > 0 ? `, held ${hold} ms` : ""}`;
}

/** Returns a contender in which all stores lock the same name repeatedly. */
function handOvers(stores: readonly LockStore[], hold: number): Repeated {
  const name = randomUUID();
  return {
    name: queueName(stores.length, hold),
    clients: stores.length,
    async run(client) {
      const lock = await (stores[client] as LockStore).lock(name, OPTIONS);
      if (hold > 0) await pause(hold);
      await lock.unlock();
    },
  };
}

/** Measures the time from a delete request to its event: the lower bound of a hand-over through ZooKeeper. */
function deleteToEvent(session: ZooKeeperSession) {
  const path = `${ROOT}/raw/event`;
  return toReporter(FLOOR, async () => {
    await session.create({ path, mode: "ephemeral" });
    const told = Promise.withResolvers<number>();
    await session.read(path, { watch: () => told.resolve(performance.now()) });
    await pause(SETTLE);
    const sentAt = performance.now();
    await session.remove(path);
    return (await told.promise) - sentAt;
  });
}

const COMPARISONS: readonly Comparison[] = [
  { name: `time of ${PAIR} over ${RAW}`, of: PAIR, over: RAW, by: "time", aim: 1.15 },
  { name: `p50 of ${NEXT} over ${FLOOR}`, of: NEXT, over: FLOOR, by: "p50", aim: 2 },
  {
    name: `rate of ${queueName(200, HOLD)} over ${queueName(2, HOLD)}`,
    of: queueName(200, HOLD),
    over: queueName(2, HOLD),
    by: "rate",
    aim: 1,
  },
  { name: "fairness among 10 waiters", of: queueName(10), by: "fairness", aim: 0.99 },
];
