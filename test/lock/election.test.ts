import { expect, test, vi } from "vitest";
import { sleep } from "../../core/lock/abort.ts";
import { StoreUnavailableError, UnknownOutcomeError } from "../../core/lock/errors.ts";
import { lockElections } from "../../core/lock/lock-election.ts";
import { pollingStore } from "../../core/lock/store.ts";
import { memoryClaims, memoryLocks, newMemory } from "../../core/stores/memory/locks.ts";
import { useVirtualClock } from "../support/timers.ts";

useVirtualClock();

const lost = new UnknownOutcomeError("the wire", "a lock was released");

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

test("a candidate that has lost the leadership shows no fence, token or key", async () => {
  const locks = memoryLocks();
  const election = await lockElections(locks).open("leader", { ttl: 3_000 });
  await election.campaign("one");
  const { fence } = await locks.inspect("leader");
  expect(election.token).toBe(1n);
  await locks.release("leader", { fence: fence ?? "" });
  await vi.advanceTimersByTimeAsync(3_000);
  expect(election.signal.aborted).toBe(true);
  expect([election.fence, election.token, election.key]).toEqual([undefined, undefined, undefined]);
  await election.close();
});

test("a value is proclaimed although the renewal before it has failed", async () => {
  const memory = newMemory();
  const claims = memoryClaims(memory);
  let renewals = 0;
  const store = pollingStore({
    ...claims,
    async renew(...args) {
      renewals += 1;
      if (renewals > 1) return claims.renew(...args);
      await sleep(100);
      throw new StoreUnavailableError("the wire", "loading");
    },
  });
  const election = await lockElections(store).open("leader", { ttl: 3_000 });
  await election.campaign("one");
  while (renewals === 0) await vi.advanceTimersByTimeAsync(10);
  const proclaiming = election.proclaim("two");
  await vi.advanceTimersByTimeAsync(1_000);
  await proclaiming;
  expect((await election.leader())?.value).toBe("two");
  await election.resign();
  await election.close();
});

test("a resign on a silent store ends after 10 s, whenever its attempts end, and a later one releases", async () => {
  for (let random = 0; random < 1; random += 0.05) {
    vi.spyOn(Math, "random").mockReturnValue(random);
    const memory = newMemory();
    const claims = memoryClaims(memory);
    let isSilent = false;
    const store = pollingStore({
      ...claims,
      async drop(names, owner, signal) {
        while (isSilent) await sleep(60_000, signal).catch(() => Promise.reject(lost));
        return claims.drop(names, owner, signal);
      },
    });
    const election = await lockElections(store).open("leader", { ttl: 60_000 });
    await election.campaign("one");
    isSilent = true;
    const startedAt = performance.now();
    let after = 0;
    const resigning = election.resign().finally(() => {
      after = performance.now() - startedAt;
    });
    const outcome = expect(resigning).rejects.toMatchObject({ code: "UNKNOWN_OUTCOME" });
    await vi.advanceTimersByTimeAsync(21_000);
    await outcome;
    expect(after).toBeLessThanOrEqual(10_500);
    isSilent = false;
    expect(await election.resign()).toBe("released");
    expect(memory.locks.size).toBe(0);
    await store.close();
    await vi.advanceTimersByTimeAsync(0);
  }
});

test("a resign after one that was done too late is not taken for a loss", async () => {
  let late = 0;
  for (let step = 0.05; step < 1; step += 0.05) {
    let random = 0;
    vi.spyOn(Math, "random").mockImplementation(() => {
      random = (random + step) % 1;
      return random;
    });
    const memory = newMemory();
    const claims = memoryClaims(memory);
    let isSilent = false;
    const store = pollingStore({
      ...claims,
      async drop(names, owner, signal) {
        if (isSilent) throw lost;
        return claims.drop(names, owner, signal);
      },
    });
    const election = await lockElections(store).open("leader", { ttl: 60_000 });
    await election.campaign("one");
    isSilent = true;
    let isOver = false;
    const outcome = expect(election.resign().finally(() => (isOver = true))).rejects.toMatchObject({
      code: "UNKNOWN_OUTCOME",
    });
    while (!isOver) await vi.advanceTimersByTimeAsync(10);
    await outcome;
    // A release may go on in the background.
    isSilent = false;
    await vi.advanceTimersByTimeAsync(11_000);
    if (memory.locks.size === 0) late += 1;
    expect(await election.resign()).toBe("released");
    expect(memory.locks.size).toBe(0);
    await store.close();
    await vi.advanceTimersByTimeAsync(0);
  }
  expect(late).toBeGreaterThan(0);
});
