import { afterAll, afterEach, beforeAll } from "vitest";
import type { Etcd } from "../../../core/stores/etcd/client/etcd.ts";
import { etcdClient } from "../../../core/stores/etcd/client/grpc.ts";
import { EtcdMutex, type MutexOptions } from "../../../core/stores/etcd/locks/mutex.ts";
import { EtcdSession } from "../../../core/stores/etcd/locks/session.ts";
import { queueOf } from "../../support/etcd.ts";
import type { EtcdServer } from "../../support/etcd-servers.ts";
import { until } from "../../support/until.ts";

/** A ttl that is longer than any pause of a busy machine. */
export const LONG = 30_000;

/** The client of the suite's server. */
export let etcd: Etcd;

/** The sessions of a test, which are closed after it. */
export const sessions: EtcdSession[] = [];

/** Further clients of a test, which are closed after its sessions. */
export const clients: Etcd[] = [];

/** Opens the client of a suite before its tests, and closes it after them. */
export function connectBeforeTests(server: EtcdServer): void {
  beforeAll(() => {
    etcd = etcdClient({ endpoints: server.endpoints });
  });

  afterEach(async () => {
    await Promise.all(sessions.splice(0).map((session) => session.close()));
    await Promise.all(clients.splice(0).map((client) => client.close()));
  });

  afterAll(() => etcd.close());
}

/** Opens a session that is closed after the test. */
export async function openSession(on = etcd, ttl = LONG): Promise<EtcdSession> {
  const session = await EtcdSession.open(on, { ttl });
  sessions.push(session);
  return session;
}

/** Makes a mutex with a session of its own. */
export async function newMutex(prefix: string, options?: MutexOptions) {
  const session = await openSession();
  return { mutex: new EtcdMutex(etcd, session, prefix, options), session };
}

/** Makes a waiter that is in the queue already. */
export async function waiting(prefix: string) {
  const made = await newMutex(prefix);
  const before = (await queueOf(etcd, prefix)).length;
  const abort = new AbortController();
  let held = false;
  const locked = made.mutex.lock({ signal: abort.signal }).then(() => {
    held = true;
  });
  locked.catch(() => {});
  await until(async () => (await queueOf(etcd, prefix)).length > before);
  return { ...made, locked, abort, isHeld: () => held };
}
