import type { LockInfo } from "../../../lock/lock.ts";
import { type Etcd, get, type KeyValue, type LeaseId, type Seconds } from "../client/etcd.ts";
import { nameOf, pastOwnRecords } from "../client/names.ts";
import { readLocks, readTimeLeft, toGeneration, toInfo } from "./info.ts";

interface ListOptions {
  /** The prefix of all keys of the store. */
  readonly keys: string;

  /** The prefix of the names. */
  readonly names: string;
  readonly generationKey: string;
}

/** A queue in which somebody holds the lock, or waits for it. */
interface Queue {
  /** The key that was created first. */
  first: KeyValue;
  count: number;

  /** Whether a key is that of a contender. All keys without one are somebody's own. */
  isContended: boolean;
}

/** The keys per read. */
const PAGE = 1_000;

/** The holders per read: etcd takes 128 operations in one transaction. */
const HOLDERS = 100;

/** The leases that are read at the same time. */
const LEASES = 50;

/** Lists the locks that are held. Reads the values of their holders alone: other keys may be large. */
export async function listLocks(etcd: Etcd, options: ListOptions): Promise<readonly LockInfo[]> {
  const queues = await findQueues(etcd, options);
  const holders = await readHolders(etcd, queues);
  const left = await readLeases(etcd, holders);
  const found = await readLocks(etcd, (limit) => etcd.range(get(options.generationKey), limit));
  const generation = toGeneration(found);
  const infos = [...queues].map(([name, { first, count }]) => {
    const holder = holders.get(first.createRevision);
    const waiters = count - 1;
    return toInfo({ name, holder, waiters, left: left.get(first.lease), generation });
  });
  const held = infos.filter(({ holder }) => holder !== undefined);
  return held.sort((a, b) => (a.name < b.name ? -1 : 1));
}

async function findQueues(
  etcd: Etcd,
  { keys: prefix, names }: ListOptions,
): Promise<ReadonlyMap<string, Queue>> {
  const queues = new Map<string, Queue>();
  for (let after: string | undefined; ; ) {
    const options = { limit: PAGE, keysOnly: true, ...(after !== undefined && { after }) };
    const page = get({ prefix: prefix + names }, options);
    const { kvs } = await readLocks(etcd, (limit) => etcd.range(page, limit));
    for (const kv of kvs) {
      const name = queueNameOf(prefix, kv.key);
      if (!name.startsWith(names)) continue;
      const isContender = kv.lease !== 0n && nameOf(prefix, kv.key) === name;
      const queue = queues.get(name) ?? { first: kv, count: 0, isContended: false };
      if (kv.createRevision < queue.first.createRevision) queue.first = kv;
      queue.count += 1;
      queue.isContended ||= isContender;
      queues.set(name, queue);
    }
    const last = kvs.at(-1)?.key;
    if (last === undefined || kvs.length < PAGE) break;
    after = pastOwnRecords(last);
  }
  return new Map([...queues].filter(([, { isContended }]) => isContended));
}

function queueNameOf(prefix: string, key: string): string {
  return key.slice(prefix.length, Math.max(prefix.length, key.lastIndexOf("/")));
}

/** Reads the holders' keys with their values, by create revision. */
async function readHolders(
  etcd: Etcd,
  queues: ReadonlyMap<string, Queue>,
): Promise<ReadonlyMap<bigint, KeyValue>> {
  const keys = [...queues.values()].map(({ first }) => first.key);
  const holders = new Map<bigint, KeyValue>();
  for (let at = 0; at < keys.length; at += HOLDERS) {
    const look = { when: [], do: keys.slice(at, at + HOLDERS).map((key) => get(key)) };
    const { answers } = await readLocks(etcd, (limit) => etcd.txn(look, limit));
    for (const kv of answers.flatMap(({ kvs }) => kvs)) holders.set(kv.createRevision, kv);
  }
  return holders;
}

/** Reads each lease once: a process has many locks on one. */
async function readLeases(
  etcd: Etcd,
  holders: ReadonlyMap<bigint, KeyValue>,
): Promise<ReadonlyMap<LeaseId, Seconds | undefined>> {
  const leases = new Set([...holders.values()].map(({ lease }) => lease));
  leases.delete(0n);
  const left = new Map<LeaseId, Seconds | undefined>();
  const all = [...leases];
  for (let at = 0; at < all.length; at += LEASES) {
    const some = all.slice(at, at + LEASES);
    const times = await Promise.all(some.map((lease) => readTimeLeft(etcd, lease)));
    for (const [i, lease] of some.entries()) left.set(lease, times[i]);
  }
  return left;
}
