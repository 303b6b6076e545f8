import type { Millis } from "../lock/time.ts";
import type { Lease, Seconds } from "./etcd.ts";

/** 1 to 2^63 - 1, at random. */
export function newLease(): Lease {
  const [number = 0n] = crypto.getRandomValues(new BigUint64Array(1));
  return number >> 1n || 1n;
}

/** The seconds that cover a span. */
export function toSeconds(span: Millis): Seconds {
  return Math.ceil(span / 1_000);
}
