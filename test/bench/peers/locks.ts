import { Redis } from "ioredis";
import { Mutex } from "redis-semaphore";
import Redlock from "redlock";
import type { LockOptions, NamedLock } from "../../peers/named-lock.ts";

const NAME = "stock";

export function redlock({ nodes, ttl }: LockOptions): NamedLock {
  const locks = new Redlock(clientsOf(nodes));
  locks.on("error", () => {});
  return {
    withLock: (body) =>
      locks.using([NAME], ttl, (signal) => body({ isHeld: () => !signal.aborted })),
  };
}

export function redisSemaphore({ nodes, ttl }: LockOptions): NamedLock {
  const [client] = clientsOf(nodes);
  return mutex(client as Redis, ttl);
}

export function redisSemaphoreOnSentinel({ nodes, ttl }: LockOptions): NamedLock {
  const sentinels = nodes.map((node) => {
    const [host = "", port] = node.split(":");
    return { host, port: Number(port) };
  });
  const client = new Redis({ sentinels, name: "lockstep" });
  client.on("error", () => {});
  return mutex(client, ttl);
}

function mutex(client: Redis, ttl: number): NamedLock {
  return {
    async withLock(body) {
      const mutex = new Mutex(client, NAME, { lockTimeout: ttl, onLockLost() {} });
      await mutex.acquire();
      try {
        await body({ isHeld: () => mutex.isAcquired });
      } finally {
        await mutex.release();
      }
    },
  };
}

function clientsOf(nodes: readonly string[]): Redis[] {
  return nodes.map((node) => {
    const client = new Redis(`redis://${node}`);
    client.on("error", () => {});
    return client;
  });
}
