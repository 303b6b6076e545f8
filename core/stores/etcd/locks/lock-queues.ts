import { deadline, noAnswer, race } from "../../../lock/abort.ts";
import type { FoundLock, LockRequest } from "../../../lock/backend.ts";
import { HIGHEST_GENERATION, noMoreGenerations } from "../../../lock/checks.ts";
import { type Fence, issueFence } from "../../../lock/fence.ts";
import { describeHolder, describeWaiter, MOST_WAITERS, newHolderId } from "../../../lock/holder.ts";
import { INCIDENT_SLOTS, type IncidentSlots } from "../../../lock/incidents.ts";
import type { LockInfo, StoreTraits } from "../../../lock/lock.ts";
import { Notifier } from "../../../lock/notifier.ts";
import type { HolderOptions } from "../../../lock/polling.ts";
import { readWhenAvailable, retryUntilKnown } from "../../../lock/retry.ts";
import { type PooledSession, SessionPool, type StoreSession } from "../../../lock/session-pool.ts";
import type { LockQueues } from "../../../lock/session-queue.ts";
import type { Millis } from "../../../lock/time.ts";
import type { WakeUpChannel } from "../../../lock/wake-ups.ts";
import {
  type Etcd,
  get,
  isAbsent,
  isCreated,
  type KeyValue,
  type LeaseId,
  put,
  remove,
  type Txn,
} from "../client/etcd.ts";
import { isIn, ownerByKey, ownKey, queueOf } from "../client/names.ts";
import { enter, enterIfFree } from "./enter.ts";
import { readLocks, readTimeLeft, textOf, toGeneration, toInfo } from "./info.ts";
import { EtcdLease } from "./lease.ts";
import { listLocks } from "./list.ts";
import { changeOrCheck, keysIn, queueKeysOf } from "./queue.ts";
import { type EtcdQueueEntry, removalOf } from "./queue-entry.ts";
import { EtcdSession } from "./session.ts";

export const etcdTraits: StoreTraits = {
  name: "etcd",
  fair: true,
  watches: true,
  serverClock: true,
  shared: true,
  lockDelay: false,
  // etcd counts in whole seconds.
  minTtl: 1_000,
};

export interface EtcdLockQueuesOptions extends HolderOptions {
  /** "" or a text that ends in "/". */
  readonly prefix: string;
  readonly closeEtcd: boolean;
}

/** The session of a pool: a lease that is kept alive. */
export interface LockSession extends StoreSession {
  readonly lease: LeaseId;
}

/** The queues of Go's mutexes. */
export class EtcdLockQueues implements LockQueues<LockSession, EtcdQueueEntry> {
  readonly traits = etcdTraits;
  readonly sessions: SessionPool<LockSession>;
  readonly wakeUps: WakeUpChannel;
  readonly incidents: IncidentSlots;
  readonly #etcd: Etcd;
  readonly #options: EtcdLockQueuesOptions;
  readonly #generationKey: string;

  constructor(etcd: Etcd, options: EtcdLockQueuesOptions) {
    this.#etcd = etcd;
    this.#options = options;
    this.#generationKey = ownKey(options.prefix, "generation");
    const key = ownKey(options.prefix, "due");
    this.wakeUps = {
      publish: (text, signal) => etcd.txn({ when: [], do: [put(key, text)] }, signal),
      subscribe: (onText) =>
        etcd.watch(key, {
          ready: () => onText(undefined),
          changed: (changes) => {
            for (const change of changes) if (change.type === "put") onText(change.value);
          },
        }),
    };
    const keys = Array.from({ length: INCIDENT_SLOTS }, (_, slot) =>
      ownKey(options.prefix, "incident", String(slot)),
    );
    this.incidents = {
      read: async () => {
        const look = { when: [], do: keys.map((each) => get(each)) };
        const { answers } = await readLocks(etcd, (limit) => etcd.txn(look, limit));
        return answers.map(({ kvs }) => kvs[0]?.value);
      },
      write: async (slot, text, signal) => {
        await etcd.txn({ when: [], do: [put(keys[slot] ?? "", text)] }, signal);
        return true;
      },
    };
    this.sessions = new SessionPool({
      address: etcd.address,
      unit: 1_000,
      open: (ttl, signal) => openSession(etcd, ttl, signal),
    });
  }

  get address(): string {
    return this.#etcd.address;
  }

  enter(
    { names, ttl, wait, patience, work, signal }: LockRequest,
    session: PooledSession<LockSession>,
  ): Promise<EtcdQueueEntry | undefined> {
    const { lease } = session.session;
    const queues = names.map((name) => queueOf(this.#options.prefix, name));
    const keys = queueKeysOf(queues, lease);
    const { label, command } = this.#options;
    // A unique value tells this entry from any other one of the same lease.
    const value = describeHolder(newHolderId(label), { ...work, command });
    const onDoubt = () => session.retire(({ lease }) => this.#cleanUp(keys, value, lease));
    const options = { signal, patience, read: get(this.#generationKey), onDoubt };
    const entry = { keys, lease, value, ttl };
    return wait > 0 ? enter(this.#etcd, entry, options) : enterIfFree(this.#etcd, entry, options);
  }

  fencesOf(entry: EtcdQueueEntry, names: readonly string[]): readonly Fence[] {
    const generation = toGeneration(entry.read);
    return names.map((name, i) =>
      issueFence(name, generation, entry.token, ownerByKey(entry.keys[i]?.key ?? "")),
    );
  }

  move(entry: EtcdQueueEntry, { lease }: LockSession, limit: AbortSignal): Promise<boolean> {
    return entry.move(lease, limit);
  }

  cleanUp(entry: EtcdQueueEntry, { lease }: LockSession): Promise<boolean> {
    return this.#cleanUp(entry.keys, entry.value, lease);
  }

  async whenFree(name: string, signal: AbortSignal): Promise<void> {
    const queue = queueOf(this.#options.prefix, name);
    const removed = new Notifier();
    const stop = this.#etcd.watch(
      { prefix: queue },
      {
        ready: () => removed.notify(),
        changed: (changes) => changes.some(({ type }) => type === "remove") && removed.notify(),
      },
    );
    const read = () => this.#etcd.range(keysIn(queue, {}), signal);
    try {
      for (;;) {
        await changeOrCheck(removed, signal, { idle: true });
        const { kvs } = await readWhenAvailable(read, signal);
        if (!kvs.some(({ key }) => isIn(queue, key))) return;
      }
    } finally {
      stop();
    }
  }

  async find(name: string): Promise<FoundLock> {
    const queue = queueOf(this.#options.prefix, name);
    const look: Txn = {
      when: [],
      do: [get({ prefix: queue }, { by: "create" }), get(this.#generationKey)],
    };
    const { answers } = await readLocks(this.#etcd, (limit) => this.#etcd.txn(look, limit));
    const [all, generation] = answers;
    const [holder, ...waiters] = all?.kvs.filter(({ key }) => isIn(queue, key)) ?? [];
    const left = holder?.lease ? await readTimeLeft(this.#etcd, holder.lease) : undefined;
    const info = toInfo({
      name,
      holder,
      waiters: waiters.length,
      left,
      generation: toGeneration(generation),
    });
    const shown = waiters.slice(0, MOST_WAITERS).map((kv) => describeWaiter(textOf(kv)));
    const drop = async (limit: AbortSignal) => holder !== undefined && this.#remove(holder, limit);
    return { info: { ...info, queue: shown }, drop };
  }

  async #remove({ key, createRevision }: KeyValue, limit: AbortSignal): Promise<boolean> {
    const removal = { when: [isCreated(key, createRevision)], do: [remove(key)] };
    return (await this.#etcd.txn(removal, limit)).succeeded;
  }

  list(names: string): Promise<readonly LockInfo[]> {
    const generationKey = this.#generationKey;
    return listLocks(this.#etcd, { keys: this.#options.prefix, names, generationKey });
  }

  raiseGeneration(least: number): Promise<number> {
    const raise = (limit: AbortSignal) => this.#raiseOnce(least, limit);
    return retryUntilKnown(this.address, "the generation was raised", undefined, raise);
  }

  /** Resolves to undefined if another operator was faster. */
  async #raiseOnce(least: number, limit: AbortSignal): Promise<number | undefined> {
    const key = this.#generationKey;
    const { kvs } = await this.#etcd.range(get(key), limit);
    const [kv] = kvs;
    const generation = Math.max(least, toGeneration({ kvs }) + 1);
    if (generation > HIGHEST_GENERATION) throw noMoreGenerations();
    const unchanged = kv
      ? ({ keys: key, target: "mod", is: "=", than: kv.modRevision } as const)
      : isAbsent(key);
    const raise: Txn = { when: [unchanged], do: [put(key, String(generation))] };
    return (await this.#etcd.txn(raise, limit)).succeeded ? generation : undefined;
  }

  async close(): Promise<void> {
    if (this.#options.closeEtcd) await this.#etcd.close();
  }

  /** Removes the keys of an entry. A late request may write them again until the lease ends. */
  async #cleanUp(keys: EtcdQueueEntry["keys"], value: string, lease: LeaseId): Promise<false> {
    await this.#etcd.txn({ when: [], do: keys.map(({ key }) => removalOf(key, value, lease)) });
    return false;
  }
}

/** How long a session that is closed waits until its lease is revoked; otherwise the lease expires. */
const REVOKING: Millis = 400;

async function openSession(etcd: Etcd, ttl: Millis, signal: AbortSignal): Promise<LockSession> {
  const lease = await EtcdLease.grant(etcd, ttl, signal);
  const session = new EtcdSession(lease);
  return {
    lease: lease.id,
    get ttl() {
      return lease.ttl;
    },
    signal: session.signal,
    get granted() {
      return lease.granted;
    },
    remaining: () => session.remaining(),
    renew: (signal) => lease.renew(signal),
    restart: (signal) => lease.renew(signal),
    stopKeepAlive: () => session.orphan(),
    async close() {
      const limit = deadline(REVOKING, noAnswer);
      await race(session.close(), limit.signal).catch(() => {});
      limit[Symbol.dispose]();
    },
  };
}
