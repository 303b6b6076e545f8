import { quote } from "../lock/errors.ts";
import type { Fence } from "../lock/fence.ts";
import { sha256 } from "../lock/sha256.ts";
import type { Kind } from "./inventory.ts";

/** A checked change of one sku, as it is written to the ledger. */
export interface Operation {
  readonly kind: Exclude<Kind, "expire">;
  readonly sku: string;
  readonly operationId: string;
  readonly fence: Fence | undefined;
  readonly quantity: number;

  /** The operation id of the reservation that is closed. */
  readonly reservation: string | undefined;

  /** In microseconds, for a new reservation. */
  readonly expiresIn: number;
}

/** Operations on one sku under one fence, in order. */
export interface Batch {
  readonly sku: string;
  readonly fence: Operation["fence"];
  readonly operations: readonly Operation[];
}

/** What a batch is, for messages. */
export function describe({ sku, operations }: Batch): string {
  const [first] = operations;
  return first && operations.length === 1
    ? `${first.kind} ${quote(first.operationId)}`
    : `a batch of ${operations.length} for ${quote(sku)}`;
}

type Payload = Pick<Operation, "kind" | "sku" | "quantity" | "reservation">;

/** What must not differ when an operation id comes again. */
export function hashOf({ kind, sku, quantity, reservation = "" }: Payload): Uint8Array {
  return sha256(JSON.stringify([kind, sku, quantity, reservation]));
}

export function sameBytes(a: Uint8Array, b: Uint8Array): boolean {
  return a.length === b.length && a.every((byte, i) => byte === b[i]);
}
