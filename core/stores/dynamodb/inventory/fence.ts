import { quote } from "../../../lock/errors.ts";
import { type Fence, FencedOutError, fenceOwner } from "../../../lock/fence.ts";
import { retryUntilKnown } from "../../../lock/retry.ts";
import type { Dynamodb, ItemWrite } from "../client/dynamodb.ts";
import type { Item, ItemKey } from "../client/items.ts";

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
export async function claim(dynamodb: Dynamodb, fence: Fence): Promise<void> {
  const what = `${quote(fence.resource)} was claimed`;
  const { done, items } = await retryUntilKnown(dynamodb.address, what, undefined, (limit) =>
    dynamodb.write([raiseClaim(fence)], limit),
  );
  if (!done) throw fencedOut(fence, items[0] ?? {});
}
