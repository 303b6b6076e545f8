import { describe, expect, test, vi } from "vitest";
import { sleep } from "../../core/lock/abort.ts";
import { deadlineIn } from "../../core/lock/duration.ts";
import { LockLostError } from "../../core/lock/errors.ts";
import type { LockEvent } from "../../core/lock/events.ts";
import { Lease, type LeaseGrant, type LeaseOptions } from "../../core/lock/lease.ts";
import { instant } from "../../core/lock/time.ts";
import { useVirtualClock } from "../support/timers.ts";

useVirtualClock();

const events: LockEvent[] = [];

function begin(options: Partial<LeaseOptions> = {}) {
  events.length = 0;
  const renew = vi.fn<LeaseOptions["renew"]>(async (ttl) => ({ ttl, sentAt: instant() }));
  const lease = new Lease({
    names: ["a"],
    ttl: 1_000,
    sentAt: instant(),
    autoRenew: true,
    maxHold: 86_400_000,
    renew,
    notify: (event) => events.push(event),
    toLossError: (why) => new LockLostError(["a"], why),
    ...options,
  });
  return { lease, renew };
}

/** Freezes the process: time passes, and no timer fires. */
function freeze(millis: number): void {
  const start = performance.now();
  vi.setSystemTime(Date.now() + millis);
  vi.spyOn(performance, "now").mockImplementation(() => start + millis);
}

describe("a lease", () => {
  test("is renewed at each third of its ttl", async () => {
    const { lease, renew } = begin();
    await vi.advanceTimersByTimeAsync(332);
    expect(renew).not.toHaveBeenCalled();
    await vi.advanceTimersByTimeAsync(2);
    expect(renew).toHaveBeenCalledTimes(1);
    await vi.advanceTimersByTimeAsync(9_990);
    expect(renew.mock.calls.length).toBeGreaterThanOrEqual(29);
    lease.assertHeld();
    lease.end("released");
  });

  test("is valid from before the request was sent", async () => {
    const sentAt = instant();
    await vi.advanceTimersByTimeAsync(900);
    const { lease } = begin({ sentAt, autoRenew: false });
    expect(lease.remaining()).toBeLessThan(100);
    await vi.advanceTimersByTimeAsync(100);
    expect(lease.signal.aborted).toBe(true);
  });

  test("is renewed at once when the claim was answered late", async () => {
    const sentAt = instant();
    await vi.advanceTimersByTimeAsync(900);
    const { lease, renew } = begin({ sentAt });
    await vi.advanceTimersByTimeAsync(1);
    expect(renew).toHaveBeenCalledTimes(1);
    await vi.advanceTimersByTimeAsync(500);
    lease.assertHeld();
    lease.end("released");
  });

  test("schedules a renewal from the time when the last one was sent", async () => {
    const sent: number[] = [];
    const start = performance.now();
    const renew: LeaseOptions["renew"] = async (ttl) => {
      const sentAt = instant();
      sent.push(Math.round(performance.now() - start));
      await sleep(200);
      return { ttl, sentAt };
    };
    const { lease } = begin({ renew });
    await vi.advanceTimersByTimeAsync(900);
    expect(sent).toEqual([333, 666]);
    lease.end("released");
  });

  test("is still renewed after ensure has asked for much more than a ttl", async () => {
    const { lease } = begin();
    await lease.ensure(60_000);
    await vi.advanceTimersByTimeAsync(120_000);
    lease.assertHeld();
    lease.end("released");
  });

  test("ends before its ttl is over, by a margin for clock drift", async () => {
    const { lease } = begin({ autoRenew: false });
    await vi.advanceTimersByTimeAsync(987);
    expect(lease.signal.aborted).toBe(false);
    await vi.advanceTimersByTimeAsync(2);
    expect(lease.signal.reason).toMatchObject({ code: "LOCK_LOST", why: "expired" });
    expect(events).toEqual([{ type: "lost", names: ["a"], why: "expired" }]);
  });

  test("counts a renewal from before it was sent, not from its answer", async () => {
    const { promise, resolve } = Promise.withResolvers<void>();
    const renew = async (ttl: number) => {
      const sentAt = instant();
      await promise;
      return { ttl, sentAt };
    };
    const { lease } = begin({ renew });
    await vi.advanceTimersByTimeAsync(734);
    resolve();
    await vi.advanceTimersByTimeAsync(0);
    // Sent at 334, answered at 734: held until 1334 less the margin.
    expect(lease.remaining()).toBeLessThanOrEqual(588);
    expect(lease.remaining()).toBeGreaterThan(580);
    lease.end("released");
  });

  test("ends in time while a renewal hangs", async () => {
    const { lease } = begin({ renew: () => new Promise(() => {}) });
    await vi.advanceTimersByTimeAsync(990);
    expect(lease.signal.reason).toMatchObject({ why: "expired" });
    await vi.advanceTimersByTimeAsync(100);
  });

  test("limits a renewal to the remaining time", async () => {
    let limit: AbortSignal | undefined;
    const renew: LeaseOptions["renew"] = (_, signal) => {
      limit ??= signal;
      return new Promise((_, reject) =>
        signal.addEventListener("abort", () => reject(signal.reason)),
      );
    };
    const { lease } = begin({ renew });
    await vi.advanceTimersByTimeAsync(1_000);
    expect(limit?.aborted).toBe(true);
    expect(lease.signal.aborted).toBe(true);
  });

  test("is renewed sooner after an error, with several attempts in the remaining time", async () => {
    let failing = true;
    const renew = vi.fn(async (ttl: number) => {
      if (failing) throw new Error("no");
      return { ttl, sentAt: instant() };
    });
    const { lease } = begin({ renew });
    await vi.advanceTimersByTimeAsync(800);
    expect(renew.mock.calls.length).toBeGreaterThanOrEqual(4);
    expect(events.every((event) => event.type === "renewal-failed")).toBe(true);
    failing = false;
    await vi.advanceTimersByTimeAsync(1_500);
    lease.assertHeld();
    lease.end("released");
  });

  test("tells by its reason's cause why it was not renewed", async () => {
    let failing = true;
    const failure = new Error("the file was deleted");
    const renew = vi.fn(async (ttl: number) => {
      if (failing) throw failure;
      return { ttl, sentAt: instant() };
    });
    const failed = begin({ renew }).lease;
    await vi.advanceTimersByTimeAsync(1_500);
    expect(failed.signal.reason).toMatchObject({ why: "expired", cause: failure });
    const renewed = begin({ renew }).lease;
    await vi.advanceTimersByTimeAsync(600);
    failing = false;
    await vi.advanceTimersByTimeAsync(600);
    freeze(5_000);
    expect(() => renewed.assertHeld()).toThrow(LockLostError);
    expect(renewed.signal.reason.cause).toBeUndefined();
  });

  test("ends at once when the store reports another owner", async () => {
    const { lease } = begin({ renew: async () => undefined });
    await vi.advanceTimersByTimeAsync(334);
    expect(lease.signal.reason).toMatchObject({ why: "taken" });
  });

  test("has ended after a freeze, even before its timers fire", () => {
    const { lease } = begin();
    freeze(5_000);
    expect(lease.signal.aborted).toBe(false);
    expect(() => lease.assertHeld()).toThrow(LockLostError);
    expect(lease.signal.aborted).toBe(true);
  });

  test.each([
    { after: 0, span: 980, holds: true },
    { after: 332, span: 640, holds: true },
    { after: 332, span: 670, holds: false },
    { after: 0, span: 1_000, holds: false },
  ])(
    "survives a freeze of $span ms that begins $after ms after a renewal: $holds",
    async (freezing) => {
      const { lease } = begin();
      await vi.advanceTimersByTimeAsync(freezing.after);
      freeze(freezing.span);
      expect(lease.remaining() > 0).toBe(freezing.holds);
      lease.end("released");
    },
  );

  test("uses the monotonic clock when the wall clock is set back", async () => {
    const { lease } = begin({ autoRenew: false });
    vi.setSystemTime(Date.now() - 3_600_000);
    await vi.advanceTimersByTimeAsync(990);
    expect(() => lease.assertHeld()).toThrow(LockLostError);
  });

  test("uses the wall clock when the monotonic clock has stopped", () => {
    const { lease } = begin({ autoRenew: false });
    vi.setSystemTime(Date.now() + 2_000);
    expect(() => lease.assertHeld()).toThrow(LockLostError);
  });

  test("does not end when assertHeld asks for more time than is left", async () => {
    const { lease } = begin({ autoRenew: false });
    await vi.advanceTimersByTimeAsync(500);
    lease.assertHeld(400);
    expect(() => lease.assertHeld(600)).toThrow(LockLostError);
    expect(lease.signal.aborted).toBe(false);
    lease.end("released");
  });

  test("is renewed by ensure only when less time is left", async () => {
    const { lease, renew } = begin({ autoRenew: false });
    await lease.ensure(500);
    expect(renew).not.toHaveBeenCalled();
    await vi.advanceTimersByTimeAsync(600);
    await lease.ensure(500);
    expect(renew).toHaveBeenCalledTimes(1);
    await lease.ensure(5_000);
    expect(renew.mock.calls[1]?.[0]).toBeGreaterThan(5_000);
    lease.assertHeld(5_000);
    lease.end("released");
  });

  test("is renewed by ensure with a third of a ttl for the answer", async () => {
    const renew: LeaseOptions["renew"] = async (ttl) => {
      const sentAt = instant();
      await sleep(300);
      return { ttl, sentAt };
    };
    const { lease } = begin({ autoRenew: false, renew });
    const ensuring = lease.ensure(5_000);
    await vi.advanceTimersByTimeAsync(300);
    await ensuring;
    lease.assertHeld(5_000);
    lease.end("released");
  });

  test("makes ensure reject when it cannot be renewed", async () => {
    const { lease } = begin({ autoRenew: false, renew: async () => undefined });
    await expect(lease.ensure(5_000)).rejects.toMatchObject({ code: "LOCK_LOST" });
    const failing = begin({
      autoRenew: false,
      renew: async () => {
        throw new Error("no");
      },
    });
    await expect(failing.lease.ensure(5_000)).rejects.toThrow("no");
    failing.lease.assertHeld();
    failing.lease.end("released");
    const capped = begin({ autoRenew: false, maxHold: 2_000 });
    const beyond = { code: "LOCK_LOST", why: "max-hold" };
    await expect(capped.lease.ensure(5_000)).rejects.toMatchObject(beyond);
    expect(capped.renew).not.toHaveBeenCalled();
    capped.lease.assertHeld();
    capped.lease.end("released");
  });

  test("rejects an invalid span without a request", async () => {
    const { lease, renew } = begin({ autoRenew: false });
    const bad = [-1, Number.NaN, Number.POSITIVE_INFINITY, 1e21, "5", "", null, {}] as number[];
    const refused = { name: expect.stringMatching(/^(Type|Range)Error$/) };
    for (const span of bad) {
      await expect(lease.ensure(span)).rejects.toMatchObject(refused);
      expect(() => lease.assertHeld(span)).toThrow(expect.objectContaining(refused));
    }
    await expect(lease.ensure(undefined as unknown as number)).rejects.toThrow(TypeError);
    expect(renew).not.toHaveBeenCalled();
    lease.end("released");
  });

  test("is renewed for no more than is left until maxHold", async () => {
    const sure = begin({ maxHold: 10_000, autoRenew: false });
    await sure.lease.ensure(9_990);
    expect(sure.renew.mock.calls[0]?.[0]).toBeGreaterThan(10_000);
    expect(sure.renew.mock.calls[0]?.[0]).toBeLessThan(10_250);
    sure.lease.end("released");
    const { lease, renew } = begin({ maxHold: 3_000 });
    await vi.advanceTimersByTimeAsync(2_990);
    const asked = renew.mock.calls.map(([ttl]) => ttl);
    expect(Math.max(...asked)).toBe(1_000);
    // The last renewal lasts until maxHold: none follows it.
    expect(asked).toHaveLength(7);
    expect(asked.at(-1)).toBeLessThan(700);
    lease.assertHeld();
    await vi.advanceTimersByTimeAsync(20);
    expect(lease.signal.reason).toMatchObject({ why: "max-hold" });
  });

  test("ends at maxHold, also within its ttl", async () => {
    const { lease } = begin({ ttl: 10_000, maxHold: 2_000, autoRenew: false });
    await vi.advanceTimersByTimeAsync(1_990);
    lease.assertHeld();
    await vi.advanceTimersByTimeAsync(20);
    expect(lease.signal.reason).toMatchObject({ why: "max-hold" });
  });

  test("is not renewed after its end", async () => {
    const { lease, renew } = begin({ maxHold: 3_000 });
    freeze(5_000);
    await vi.advanceTimersByTimeAsync(400);
    expect(renew).not.toHaveBeenCalled();
    expect(lease.signal.aborted).toBe(true);
  });

  test("is never shortened by a renewal", async () => {
    const { lease } = begin();
    await lease.ensure(60_000);
    await vi.advanceTimersByTimeAsync(1_000);
    lease.assertHeld(58_000);
    lease.end("released");
  });

  test("ends at maxHold, with renewals as well", async () => {
    const { lease } = begin({ maxHold: 3_000 });
    await vi.advanceTimersByTimeAsync(2_990);
    lease.assertHeld();
    await vi.advanceTimersByTimeAsync(20);
    expect(lease.signal.reason).toMatchObject({ why: "max-hold" });
  });

  test("keeps its first reason", async () => {
    const { lease, renew } = begin();
    lease.end("released");
    lease.end("expired");
    expect(lease.signal.reason).toMatchObject({ why: "released" });
    expect(events).toEqual([]);
    await vi.advanceTimersByTimeAsync(5_000);
    expect(renew).not.toHaveBeenCalled();
  });

  test("has one error as its reason, before and after its signal is first read", async () => {
    for (const asksBefore of [true, false]) {
      const { lease } = begin({ autoRenew: false });
      const before = asksBefore ? lease.signal : undefined;
      const told: unknown[] = [];
      lease.onEnd((why) => told.push(why, lease.signal.aborted));
      await vi.advanceTimersByTimeAsync(1_000);
      expect(told).toEqual(["expired", true]);
      expect(lease.ended).toBe("expired");
      expect(lease.signal).toBe(before ?? lease.signal);
      expect(lease.signal.reason).toMatchObject({ code: "LOCK_LOST", why: "expired" });
      let thrown: unknown;
      try {
        lease.assertHeld();
      } catch (error) {
        thrown = error;
      }
      expect(thrown).toBe(lease.signal.reason);
    }
  });

  test("stays ended when a renewal is answered after the end", async () => {
    const { promise, resolve } = Promise.withResolvers<LeaseGrant>();
    const { lease } = begin({ renew: () => promise });
    const sentAt = instant();
    await vi.advanceTimersByTimeAsync(400);
    lease.end("released");
    resolve({ ttl: 10_000, sentAt });
    await vi.advanceTimersByTimeAsync(5_000);
    expect(lease.remaining()).toBe(0);
    expect(events).toEqual([]);
  });
});

test("a deadline uses the clock with less time left", async () => {
  const deadline = deadlineIn(1_000);
  await vi.advanceTimersByTimeAsync(400);
  expect(deadline.remaining()).toBe(600);
  vi.setSystemTime(Date.now() + 300);
  expect(deadline.remaining()).toBe(300);
  vi.setSystemTime(Date.now() - 3_600_000);
  expect(deadline.remaining()).toBe(600);
});
