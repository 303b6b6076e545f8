import type { Notifier } from "../../../lock/notifier.ts";
import { jittered, type Millis } from "../../../lock/time.ts";
import { type Get, get, type KeyValue, type LeaseId, type OpAnswer } from "../client/etcd.ts";
import { isIn } from "../client/names.ts";
import { hex } from "./lease.ts";

/** The key of an entry in one queue. */
export interface QueueKey {
  /** The prefix of all keys in the queue, up to and with the last "/". */
  readonly queue: string;
  readonly key: string;
}

/** The keys of an entry: one in each of one or more queues, all with one value under one lease. */
export interface EntryKeys {
  readonly keys: readonly QueueKey[];
  readonly lease: LeaseId;
  readonly value: string;

  /** The ttl of the lease. */
  readonly ttl: Millis;
}

/** The keys of a lease in these queues, as Go names them. */
export function queueKeysOf(queues: readonly string[], lease: LeaseId): readonly QueueKey[] {
  return queues.map((queue) => ({ queue, key: queue + hex(lease) }));
}

/** Reads the keys of a queue, the latest first. */
export function keysIn(queue: string, options: Partial<Get>): Get {
  return get({ prefix: queue }, { by: "create", order: "descending", keysOnly: true, ...options });
}

/** The first contender of each queue among the keys that were read of it. */
export function contendersIn(
  keys: readonly QueueKey[],
  answers: readonly OpAnswer[],
): readonly KeyValue[] {
  return keys.flatMap(({ queue }, i) => answers[i]?.kvs.find(({ key }) => isIn(queue, key)) ?? []);
}

/** Whether keys of nested names are among those that were read of the queues. */
export function hasNested(keys: readonly QueueKey[], answers: readonly OpAnswer[]): boolean {
  return keys.some(({ queue }, i) => answers[i]?.kvs.some(({ key }) => !isIn(queue, key)));
}

/** The time between two reads without a notification: a watch on a member that is cut off stays silent. */
const CHECK_EVERY: Millis = 10_000;

/**
 * Waits for a notification of a watch, or until it is time to read all the same. An idle wait does not keep the process
 * alive; nor does a watch that is being created again.
 */
export async function changeOrCheck(
  notifier: Notifier,
  signal: AbortSignal,
  { idle = false }: { readonly idle?: boolean } = {},
): Promise<void> {
  const span = jittered(CHECK_EVERY);
  await notifier.wait({ span, signal, idle });
}
