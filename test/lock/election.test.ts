import { expect, test, vi } from "vitest";
import { lockElections } from "../../core/lock/lock-election.ts";
import { memoryLocks } from "../../core/stores/memory/locks.ts";
import { useVirtualClock } from "../support/timers.ts";

useVirtualClock();

test("an observer gets each leader and each value once, however often the lock is read", async () => {
  const election = await lockElections(memoryLocks()).open("leader");
  const stop = new AbortController();
  const seen: (string | undefined)[] = [];
  const observing = (async () => {
    for await (const leader of election.observe(stop)) seen.push(leader?.value);
  })();
  await vi.advanceTimersByTimeAsync(5_000);
  await election.campaign("one");
  await vi.advanceTimersByTimeAsync(5_000);
  await election.proclaim("two");
  await vi.advanceTimersByTimeAsync(5_000);
  expect(seen).toEqual([undefined, "one", "two"]);
  stop.abort("enough");
  await expect(observing).rejects.toBe("enough");
  await election.close();
});
