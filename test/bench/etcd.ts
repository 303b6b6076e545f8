import { Etcd3 } from "etcd3";
import { type Etcd, put, remove } from "../../core/stores/etcd/client/etcd.ts";
import { etcdClient } from "../../core/stores/etcd/client/grpc.ts";
import { etcdLocks } from "../../core/stores/etcd/locks/index.ts";
import { EtcdMutex } from "../../core/stores/etcd/locks/mutex.ts";
import { EtcdSession } from "../../core/stores/etcd/locks/session.ts";
import { startServer } from "../../infra/servers/start.ts";
import { etcd3Client } from "../support/etcd3-client.ts";
import { GoMutex } from "./go.ts";
import { deleteToEvent, handOver, handOvers } from "./hand-over.ts";
import type { Comparison, Contender } from "./measure.ts";
import { rawHttp2 } from "./raw-http2.ts";
import type { Suite } from "./suite.ts";

const TTL = 60_000;

/** Numbers of waiters, each with its own session. */
const WAITERS = [2, 10, 50, 200] as const;

/** How long each waiter holds the lock, in milliseconds. */
const HOLD = 5;

/** Concurrent clients of one connection. */
const CLIENTS = 16;

/**
 * Locks on etcd, compared with requests over HTTP/2 without a client, with the same over the gRPC of npm etcd3, with the lock
 * of npm etcd3, and with etcd's mutex in Go.
 */
export const etcdSuite: Suite = async (onProgress) => {
  const server = await startServer("etcd", { onProgress });
  const endpoint = new URL(server.url).host;
  const etcd = etcdClient({ endpoints: [endpoint] });
  const overEtcd3 = etcd3Client({ endpoints: [endpoint] });
  const raw = rawHttp2(endpoint);
  const etcd3 = new Etcd3({ hosts: `http://${endpoint}` });
  const locks = etcdLocks(etcd);
  onProgress("opening sessions");
  const sessions = await Promise.all(
    Array.from({ length: Math.max(...WAITERS) }, () => EtcdSession.open(etcd, { ttl: TTL })),
  );
  onProgress("looking for the Go reference");
  const go = await GoMutex.build(endpoint);
  const [session, other] = sessions as [EtcdSession, EtcdSession, ...EtcdSession[]];
  const mutex = new EtcdMutex(etcd, session, "bench/mutex");
  const sessionOverEtcd3 = await EtcdSession.open(overEtcd3, { ttl: TTL });
  const mutexOverEtcd3 = new EtcdMutex(overEtcd3, sessionOverEtcd3, "bench/mutex-over-etcd3");
  const putAndDelete = async (client: Etcd, key: string) => {
    await client.txn({ when: [], do: [put(key, "")] });
    await client.txn({ when: [], do: [remove(key)] });
  };
  const lockAndUnlock = async (one: EtcdMutex) => {
    await one.lock();
    await one.unlock();
  };

  const pairs: readonly Contender[] = [
    ...[1, CLIENTS].flatMap((clients): Contender[] => [
      { name: named(RAW, clients), clients, run: (client) => raw.putAndDelete(client) },
      {
        name: named("put + delete", clients),
        clients,
        run: (client) => putAndDelete(etcd, `bench/ours/${client}`),
      },
      {
        name: named("put + delete over etcd3", clients),
        clients,
        run: (client) => putAndDelete(overEtcd3, `bench/over-etcd3/${client}`),
      },
    ]),
    { name: "Mutex lock + unlock", run: () => lockAndUnlock(mutex) },
    { name: "Mutex lock + unlock over etcd3", run: () => lockAndUnlock(mutexOverEtcd3) },
    {
      name: "etcdLocks lock + unlock",
      async run() {
        await (await locks.lock("bench-store", { ttl: TTL, wait: TTL })).unlock();
      },
    },
    {
      name: "etcd3 put + delete",
      async run() {
        await etcd3.put("bench/etcd3").value("").exec();
        await etcd3.delete().key("bench/etcd3").exec();
      },
    },
    {
      name: "etcd3 Lock acquire + release",
      async run() {
        await (await etcd3.lock("bench/etcd3-lock").acquire()).release();
      },
    },
  ];
  const queues = WAITERS.flatMap((waiters) => {
    const owners = sessions.slice(0, waiters);
    return [0, HOLD].map((hold) => handOvers(queueName(waiters, hold), etcd, owners, hold));
  });
  const local = handOvers(
    LOCAL,
    etcd,
    Array.from({ length: 10 }, () => session),
  );
  const floor = deleteToEvent(FLOOR, etcd);
  const next = handOver(NEXT, etcd, session, other);

  return {
    server: server.version,
    notes: [
      typeof go === "string"
        ? `no comparison with Go: ${go}`
        : `no comparison with Go for locks held ${HOLD} ms: the Go reference unlocks at once`,
    ],
    contenders: [
      ...pairs,
      ...queues,
      local,
      floor,
      next,
      ...(typeof go === "string" ? [] : goContenders(go)),
    ],
    comparisons: [...COMPARISONS, ...(typeof go === "string" ? [] : GO_COMPARISONS)],
    async close() {
      await Promise.all(sessions.map((each) => each.close()));
      await sessionOverEtcd3.close();
      await locks.close();
      await etcd.close();
      await overEtcd3.close();
      raw.close();
      etcd3.close();
      await server.stop();
    },
  };
};

const RAW = "raw put + delete";

function named(name: string, clients: number): string {
  return clients === 1 ? name : `${name}, ${clients} at a time`;
}

const LOCAL = "hand-overs, 10 waiters of one session";
const FLOOR = "delete to event";
const NEXT = "unlock to the next owner";

function queueName(waiters: number, hold = 0): string {
  return `hand-overs, ${waiters} waiters${hold > 0 ? `, held ${hold} ms` : ""}`;
}

function goContenders(go: GoMutex): readonly Contender[] {
  return [
    go.pairs("Go lock + unlock"),
    ...WAITERS.map((waiters) => go.handOvers(`Go ${queueName(waiters)}`, waiters)),
  ];
}

const COMPARISONS: readonly Comparison[] = [
  ...[1, CLIENTS].map((clients): Comparison => {
    const [of, over] = [named("put + delete", clients), named(RAW, clients)];
    return { name: `time of ${of} over raw`, of, over, by: "time", aim: 1.15 };
  }),
  ...["put + delete", "Mutex lock + unlock"].map((of): Comparison => {
    const over = `${of} over etcd3`;
    return {
      name: `time of ${of} over the same over etcd3's gRPC`,
      of,
      over,
      by: "time",
      aim: 0.9,
    };
  }),
  ...["Mutex", "etcdLocks"].flatMap((ours): Comparison[] => [
    {
      name: `time of ${ours} lock + unlock over ${RAW}`,
      of: `${ours} lock + unlock`,
      over: RAW,
      by: "time",
      aim: 1.15,
    },
    {
      name: `rate of ${ours} lock + unlock over etcd3's Lock`,
      of: `${ours} lock + unlock`,
      over: "etcd3 Lock acquire + release",
      by: "rate",
      aim: 2.2,
    },
  ]),
  { name: `p50 of ${NEXT} over ${FLOOR}`, of: NEXT, over: FLOOR, by: "p50", aim: 2 },
  { name: "fairness among 10 waiters", of: queueName(10), by: "fairness", aim: 0.99 },
];

/** The aims of hand-overs over Go, by the number of waiters. */
const GO_AIMS = { 2: 5, 10: 5, 50: 1.3, 200: 1 } as const;

const GO_COMPARISONS: readonly Comparison[] = [
  {
    name: "rate of Mutex lock + unlock over Go",
    of: "Mutex lock + unlock",
    over: "Go lock + unlock",
    by: "rate",
    aim: 0.9,
  },
  ...WAITERS.map((waiters): Comparison => {
    const name = queueName(waiters);
    const aim = GO_AIMS[waiters];
    return { name: `rate of ${name} over Go`, of: name, over: `Go ${name}`, by: "rate", aim };
  }),
  { name: `rate of ${LOCAL} over Go`, of: LOCAL, over: `Go ${queueName(10)}`, by: "rate", aim: 10 },
];
