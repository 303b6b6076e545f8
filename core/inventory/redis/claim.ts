import { FencedOutError, quote } from "../../lock/errors.ts";
import { type Fence, fenceOwner } from "../../lock/fence.ts";
import type { Place } from "./place.ts";
import { CLAIM } from "./scripts.ts";
import { settle } from "./settle.ts";

export async function claim(place: Place, fence: Fence): Promise<void> {
  const [status, current = ""] = await settle(place, {
    what: `${quote(fence.resource)} was claimed`,
    script: CLAIM,
    input: {
      keys: [place.keys.claim(fence.resource)],
      args: [String(fence), fenceOwner(fence) ?? ""],
    },
  });
  if (status === "late") throw fencedOut(fence, current);
}

/** What a resource refuses holds a later fence, or an equal one of another holder. */
export function fencedOut(fence: Fence, current = ""): FencedOutError {
  return new FencedOutError(fence, current, { byEqual: current === String(fence) });
}
