import { quote } from "../../../lock/errors.ts";
import { type Fence, FencedOutError, fenceOwner } from "../../../lock/fence.ts";
import { retryUntilKnown } from "../../../lock/retry.ts";
import type { Dynamodb, ItemWrite } from "../client/dynamodb.ts";
import type { Item, ItemKey } from "../client/items.ts";
import type { ItemTransaction, Part, Refusal } from "../client/transaction.ts";

/**
 * Raises the resource's claim to the fence, unless the resource has a later one, or an equal one of another holder.
 * Fences are compared as texts of fixed width.
 */
export function raiseClaim(fence: Fence): ItemWrite {
  return {
    key: claimKey(fence.resource),
    update: "SET #fence = :fence, #holder = :holder",
    when:
      "attribute_not_exists(#fence) OR #fence < :fence OR " +
      "(#fence = :fence AND #holder = :holder)",
    values: { fence: String(fence), holder: fenceOwner(fence) ?? "" },
  };
}

export function claimKey(resource: string): ItemKey {
  return { pk: `claim/${resource}`, sk: "claim" };
}

/** Returns the error for a fence that the claim refuses. */
export function fencedOut(fence: Fence, { fence: current = "" }: Item): FencedOutError {
  return new FencedOutError(fence, current, { byEqual: current === String(fence) });
}

/** Claims a resource for the fence. Rejects with a FencedOutError. */
export async function claim(dynamodb: Dynamodb, fence: Fence, signal?: AbortSignal): Promise<void> {
  const what = `${quote(fence.resource)} was claimed`;
  const { done, items } = await retryUntilKnown(dynamodb.address, what, signal, (limit) =>
    dynamodb.write([raiseClaim(fence)], limit),
  );
  if (!done) throw fencedOut(fence, items[0] ?? {});
}

/** The claim of a resource in a transaction: it is refused if another holder has claimed the resource since. */
class ClaimPart implements Part {
  fence: Fence | undefined;

  writes(): readonly ItemWrite[] {
    return this.fence ? [raiseClaim(this.fence)] : [];
  }

  refused({ items }: Refusal): void {
    if (this.fence) throw fencedOut(this.fence, items[0] ?? {});
  }
}

/** Makes the claim a part of the transaction. The resource was claimed for this fence before the body's first read. */
export function claimWithin(tx: ItemTransaction, fence: Fence): void {
  claimOf(tx, fence).fence = fence;
}

/** The same, and claims the resource now if it was not claimed for this fence before. Rejects with a FencedOutError. */
export async function claimNowAndWithin(
  dynamodb: Dynamodb,
  tx: ItemTransaction,
  fence: Fence,
): Promise<void> {
  const part = claimOf(tx, fence);
  const isClaimed =
    String(part.fence) === String(fence) &&
    part.fence &&
    fenceOwner(part.fence) === fenceOwner(fence);
  if (!isClaimed) await claim(dynamodb, fence, tx.signal);
  part.fence = fence;
}

function claimOf(tx: ItemTransaction, { resource }: Fence): ClaimPart {
  return tx.part(`claim/${resource}`, () => new ClaimPart());
}
