import { expect, test, vi } from "vitest";
import { sleep } from "../../core/lock/abort.ts";
import type { LockEvent } from "../../core/lock/events.ts";
import { pollingStore } from "../../core/lock/store.ts";
import { memoryClaims, newMemory } from "../../core/stores/memory/locks.ts";
import { breakable } from "../support/breakable.ts";
import { finish, useVirtualClock } from "../support/timers.ts";

useVirtualClock();

test("a listener that throws or rejects loses no lock", async () => {
  const fail = () => {
    throw new Error("a fault of the listener");
  };
  for (const onEvent of [fail, async () => fail()]) {
    await using locks = pollingStore(memoryClaims(newMemory()), { onEvent });
    const lost = await locks.lock("x", { ttl: 1_500, wait: 0, renew: false });
    expect(await locks.tryLock("x", { ttl: 1_000 })).toBeUndefined();
    await vi.advanceTimersByTimeAsync(1_500);
    expect(lost.signal.aborted).toBe(true);
    expect(await lost.unlock()).toBe("was-lost");
    expect(await locks.withLock("x", { ttl: 1_000, wait: 1_000 }, async () => "done")).toBe("done");
  }
});

test("withLock rejects with the loss of its lock, even when the release fails", async () => {
  const { claims, wire } = breakable(memoryClaims(newMemory()));
  const locks = pollingStore(claims);
  const body = async () => {
    wire.cut();
    await sleep(1_600);
    return "done";
  };
  const outcome = locks.withLock("x", { ttl: 1_500, wait: 0, renew: false }, body);
  await expect(finish(outcome)).rejects.toMatchObject({ code: "LOCK_LOST", why: "expired" });
});

test("a release without an answer is not reported as a loss", async () => {
  const { claims, wire } = breakable(memoryClaims(newMemory()));
  const locks = pollingStore(claims);
  const body = async () => {
    wire.cut();
    return "done";
  };
  const outcome = locks.withLock("x", { ttl: 1_000, wait: 0 }, body);
  expect(await finish(outcome)).toBe("done");
});

test("close reports each lock that another owner has taken once, and no other lock", async () => {
  const memory = newMemory();
  const claims = memoryClaims(memory);
  const events: LockEvent[] = [];
  const locks = pollingStore(claims, { onEvent: (event) => events.push(event) });
  const options = { ttl: 10_000, wait: 0, renew: false };
  await locks.lock("kept", options);
  await locks.lock("taken", options);
  const { holder = "" } = await claims.inspect("taken");
  await claims.drop(["taken"], holder, AbortSignal.timeout(1_000));
  await locks.close();
  const lost = events.filter(({ type }) => type === "lost");
  expect(lost).toMatchObject([{ names: ["taken"], why: "taken" }]);
});
