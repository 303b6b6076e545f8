import { isAbsent, type Op, type Put, put } from "../../etcd/etcd.ts";

/**
 * How many operations a transaction within a transaction has: etcd takes 128 of them in one, and in each one
 * within it as many as the one around it has left.
 */
export const PIECE = 60;

export function piecesOf<T>(all: readonly T[]): readonly (readonly T[])[] {
  return Array.from({ length: Math.ceil(all.length / PIECE) }, (_, i) =>
    all.slice(i * PIECE, (i + 1) * PIECE),
  );
}

/** Any number of operations. */
export function packed(ops: readonly Op[]): readonly Op[] {
  if (ops.length <= PIECE) return ops;
  return piecesOf(ops).map((piece) => ({ op: "txn", txn: { when: [], do: piece } }));
}

/**
 * Any number of puts under keys that must not be there yet. If one of them is, nothing at all of the
 * transaction is done, and it rejects with a NoLeaseError.
 */
export function packedNew(puts: readonly Put[]): readonly Op[] {
  return piecesOf(puts).map((piece) => ({
    op: "txn",
    txn: {
      when: piece.map(({ key }) => isAbsent(key)),
      do: piece,
      otherwise: piece.slice(0, 1).map(({ key }) => put(key, "", NO_LEASE)),
    },
  }));
}

/**
 * A lease that nobody is granted. The comparisons of a transaction within a transaction do not decide about
 * the whole; but before etcd does anything, it checks the leases of all puts that comparisons lead to.
 */
const NO_LEASE = -1n;
