import { deadline } from "../lock/abort.ts";
import { hasCode, StoreUnavailableError } from "../lock/errors.ts";
import type { KeyedQueue } from "../lock/keyed-queue.ts";
import { LONGEST_CALL, type Millis } from "../lock/time.ts";
import { queuedTooLong } from "./operation.ts";

/** The longest span for which a client asks others to wait. */
export const LONGEST_TURN: Millis = 1_000;

/** Returns the error of a request for a turn: whether or not it has arrived, it changes no result. */
export function withoutEffect(address: string, error: unknown): unknown {
  const isUnknown = hasCode(error, "UNKNOWN_OUTCOME");
  return isUnknown ? new StoreUnavailableError(address, "no answer in time", error) : error;
}

/** The line of a client's changes of one sku. */
interface Line {
  readonly queue: KeyedQueue;

  /** The address of the store for messages: without secrets. */
  readonly address: string;
  readonly sku: string;
}

/** Takes turns with this client's other changes of the sku, which would only conflict with this one. */
export async function inTurn<T>(
  { queue, address, sku }: Line,
  signal: AbortSignal | undefined,
  change: () => Promise<T>,
): Promise<T> {
  using wait = deadline(LONGEST_CALL, () => queuedTooLong(address, sku), signal);
  await queue.enter(sku, wait.signal);
  try {
    return await change();
  } finally {
    queue.leave(sku);
  }
}
