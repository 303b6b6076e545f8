import { Etcd3 } from "etcd3";
import mysql from "mysql2/promise";
import pg from "pg";
import type { Lock } from "../../core/lock/lock.ts";
import { isHeld } from "../../core/lock/lock-handle.ts";
import { open } from "../../infra/open.ts";
import { openReady } from "../../infra/open-ready.ts";
import { loadPeer } from "../bench/peers.ts";
import type { CampaignStoreName } from "../campaign/stores.ts";
import type { Held, LockOptions, NamedLock } from "./named-lock.ts";
import { versionOf } from "./version-of.ts";

/** A lock that the nemesis tries. */
export interface Contestant {
  readonly store: CampaignStoreName;

  /** How it is used. */
  readonly usage: string;

  /** The package and its version; this package, if there is none. */
  readonly package?: string;

  /** Makes the tables, before any contender opens the lock. */
  prepare?(url: string): Promise<void>;
  open(options: LockOptions): Promise<NamedLock>;
}

const NAME = "stock";

/** The module that has the locks of packages that only comparisons install. */
interface PeerLocks {
  redlock(options: LockOptions): NamedLock;
  redisSemaphore(options: LockOptions): NamedLock;
  redisSemaphoreOnSentinel(options: LockOptions): NamedLock;
}

const ACQUIRED = "Mutex, isAcquired before the write";
const DO = "lock().ttl().do(): it has nothing to ask";
const USED = "withLock, assertHeld() before the write";

export const CONTESTANTS = {
  redlock: {
    store: "redlock",
    usage: "using, signal.aborted before the write",
    package: versionOf("redlock"),
    open: async (options) => (await peerLocks()).redlock(options),
  },
  "redis-semaphore": {
    store: "redis",
    usage: ACQUIRED,
    package: versionOf("redis-semaphore"),
    open: async (options) => (await peerLocks()).redisSemaphore(options),
  },
  "redis-semaphore on Redis Sentinel": {
    store: "redis-sentinel",
    usage: `${ACQUIRED}, ioredis with its sentinels`,
    package: versionOf("redis-semaphore"),
    open: async (options) => (await peerLocks()).redisSemaphoreOnSentinel(options),
  },
  "etcd3 Lock": {
    store: "etcd",
    usage: DO,
    package: versionOf("etcd3"),
    open: etcd3Lock,
  },
  "etcd3 Lock on an etcd cluster": {
    store: "etcd-cluster",
    usage: DO,
    package: versionOf("etcd3"),
    open: etcd3Lock,
  },
  pg_advisory_lock: {
    store: "postgres",
    usage: "of a session, whose end the client notices",
    package: versionOf("pg"),
    open: async ({ url }) => ({ withLock: (body) => withAdvisoryLock(url, body) }),
  },
  GET_LOCK: {
    store: "mariadb",
    usage: "of a session, whose end the client notices",
    package: versionOf("mysql2"),
    open: async ({ url }) => ({ withLock: (body) => withGetLock(url, body) }),
  },
  "Lockstep on Redis, without its fence": ours("redis", false),
  "Lockstep on Redis": ours("redis", true),
  "Lockstep on Redis Sentinel, without its fence": ours("redis-sentinel", false),
  "Lockstep on Redis Sentinel": ours("redis-sentinel", true),
  "Lockstep on etcd, without its fence": ours("etcd", false),
  "Lockstep on an etcd cluster, without its fence": ours("etcd-cluster", false),
  "Lockstep on PostgreSQL, without its fence": ours("postgres", false),
  "Lockstep on Redlock": ours("redlock", true),
  "Lockstep on etcd": ours("etcd", true),
  "Lockstep on an etcd cluster": ours("etcd-cluster", true),
  "Lockstep on PostgreSQL": ours("postgres", true),
  "Lockstep on MariaDB": ours("mariadb", true),
} as const satisfies Readonly<Record<string, Contestant>>;

export type ContestantName = keyof typeof CONTESTANTS;

function peerLocks(): Promise<PeerLocks> {
  return loadPeer<PeerLocks>("locks");
}

async function etcd3Lock({ nodes, ttl }: LockOptions): Promise<NamedLock> {
  const client = new Etcd3({ hosts: nodes.map((node) => `http://${node}`) });
  return {
    withLock: (body) =>
      client
        .lock(NAME)
        .ttl(ttl / 1_000)
        .do(() => body({ isHeld: () => true })),
  };
}

async function withAdvisoryLock(url: string, body: (held: Held) => Promise<void>): Promise<void> {
  const client = new pg.Client(url);
  let hasEnded = false;
  client.on("error", () => {});
  client.on("end", () => {
    hasEnded = true;
  });
  await client.connect();
  try {
    await client.query("SELECT pg_advisory_lock(hashtext($1))", [NAME]);
    await body({ isHeld: () => !hasEnded });
    await client.query("SELECT pg_advisory_unlock(hashtext($1))", [NAME]);
  } finally {
    await client.end();
  }
}

async function withGetLock(url: string, body: (held: Held) => Promise<void>): Promise<void> {
  const client = await mysql.createConnection(url);
  let hasEnded = false;
  for (const event of ["error", "end"]) {
    client.on(event, () => {
      hasEnded = true;
    });
  }
  try {
    const [[row]] = await client.query<mysql.RowDataPacket[]>("SELECT GET_LOCK(?, 10) AS taken", [
      NAME,
    ]);
    if (row?.taken !== 1) throw new Error("GET_LOCK was not granted in time");
    await body({ isHeld: () => !hasEnded });
    await client.query("SELECT RELEASE_LOCK(?)", [NAME]);
  } finally {
    client.destroy();
  }
}

/** Our locks. Without the fence, the holder asks `assertHeld()` and sends nothing with its write. */
function ours(store: CampaignStoreName, withFence: boolean): Contestant {
  const used = withFence ? `${USED}, the fence with it` : USED;
  return {
    store,
    usage: store === "redis-sentinel" ? `${used}, replicas=1 in the URL` : used,
    prepare: async (url) => (await openReady(url)).close(),
    async open({ url, ttl }) {
      const { locks } = await open(url);
      const heldOf = (lock: Lock): Held => ({
        isHeld: () => isHeld(lock),
        ...(withFence && { fence: String(lock.fence) }),
      });
      return {
        withLock: (body) =>
          locks.withLock(NAME, { ttl, wait: 10_000 }, (lock) => body(heldOf(lock))),
      };
    },
  };
}
