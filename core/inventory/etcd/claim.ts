import { quote } from "../../lock/errors.ts";
import type { Fence } from "../../lock/fence.ts";
import { insist } from "../../lock/insist.ts";
import { commit } from "./commit.ts";
import {
  checkStanding,
  raise,
  type Standing,
  standingReads,
  standsSo,
  toStanding,
} from "./fencing.ts";
import type { Place } from "./place.ts";
import { foundIn } from "./view.ts";

export async function claim(place: Place, fence: Fence): Promise<void> {
  const what = `${quote(fence.resource)} was claimed`;
  await insist(place.etcd.address, what, undefined, (limit) => attempt(place, fence, limit));
}

async function attempt(place: Place, fence: Fence, limit: AbortSignal): Promise<true> {
  const { keys } = place;
  const otherwise = standingReads(keys, fence);
  // A resource that is new to this fence has most likely not been claimed by anybody.
  let standing: Standing = { claim: undefined, isGone: false };
  for (;;) {
    const conditions = { when: standsSo(keys, fence, standing), otherwise };
    const write = { ...conditions, state: raise(keys, fence, standing), records: [] };
    const { succeeded, answers } = await commit(place, write, limit);
    if (succeeded) return true;
    standing = toStanding(keys, fence, foundIn(answers));
    checkStanding(fence, standing);
  }
}
