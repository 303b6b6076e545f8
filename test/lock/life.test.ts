import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { sleep } from "../../core/lock/abort.ts";
import { LockLostError } from "../../core/lock/errors.ts";
import type { LockEvent } from "../../core/lock/events.ts";
import { type Grant, Life, type Terms } from "../../core/lock/life.ts";
import { deadlineIn, instant } from "../../core/lock/time.ts";

beforeEach(() => {
  vi.useFakeTimers();
});

afterEach(() => {
  const timers = vi.getTimerCount();
  vi.restoreAllMocks();
  vi.useRealTimers();
  expect(timers).toBe(0);
});

const events: LockEvent[] = [];

function begin(terms: Partial<Terms> = {}) {
  events.length = 0;
  const renew = vi.fn<Terms["renew"]>(async (ttl) => ({ ttl, sentAt: instant() }));
  const life = new Life({
    names: ["a"],
    ttl: 1_000,
    sentAt: instant(),
    auto: true,
    maxHold: 86_400_000,
    renew,
    notify: (event) => events.push(event),
    lost: (why) => new LockLostError(["a"], why),
    ...terms,
  });
  return { life, renew };
}

/** The process is frozen: time passes, and no timer runs. */
function freeze(millis: number): void {
  const start = performance.now();
  vi.setSystemTime(Date.now() + millis);
  vi.spyOn(performance, "now").mockImplementation(() => start + millis);
}

describe("a life", () => {
  test("is renewed at a third of its ttl, again and again", async () => {
    const { life, renew } = begin();
    await vi.advanceTimersByTimeAsync(332);
    expect(renew).not.toHaveBeenCalled();
    await vi.advanceTimersByTimeAsync(2);
    expect(renew).toHaveBeenCalledTimes(1);
    await vi.advanceTimersByTimeAsync(9_990);
    expect(renew.mock.calls.length).toBeGreaterThanOrEqual(29);
    life.assertHeld();
    life.end("released");
  });

  test("counts from before the request was sent", async () => {
    const sentAt = instant();
    await vi.advanceTimersByTimeAsync(900);
    const { life } = begin({ sentAt, auto: false });
    expect(life.remaining()).toBeLessThan(100);
    await vi.advanceTimersByTimeAsync(100);
    expect(life.signal.aborted).toBe(true);
  });

  test("ends before its ttl is over, by a margin for clocks that run apart", async () => {
    const { life } = begin({ auto: false });
    await vi.advanceTimersByTimeAsync(987);
    expect(life.signal.aborted).toBe(false);
    await vi.advanceTimersByTimeAsync(2);
    expect(life.signal.reason).toMatchObject({ code: "LOCK_LOST", why: "expired" });
    expect(events).toEqual([{ type: "lost", names: ["a"], why: "expired" }]);
  });

  test("counts a renewal from before it was sent, not from its answer", async () => {
    const { promise, resolve } = Promise.withResolvers<void>();
    const renew = async (ttl: number) => {
      const sentAt = instant();
      await promise;
      return { ttl, sentAt };
    };
    const { life } = begin({ renew });
    await vi.advanceTimersByTimeAsync(834);
    resolve();
    await vi.advanceTimersByTimeAsync(0);
    // Sent at 334, answered at 834: held until 1334 less the margin.
    expect(life.remaining()).toBeLessThanOrEqual(488);
    expect(life.remaining()).toBeGreaterThan(480);
    life.end("released");
  });

  test("does not wait for a renewal that hangs", async () => {
    const { life } = begin({ renew: () => new Promise(() => {}) });
    await vi.advanceTimersByTimeAsync(990);
    expect(life.signal.reason).toMatchObject({ why: "expired" });
  });

  test("gives a renewal no more time than is left", async () => {
    let limit: AbortSignal | undefined;
    const renew: Terms["renew"] = (_, signal) => {
      limit ??= signal;
      return new Promise((_, reject) =>
        signal.addEventListener("abort", () => reject(signal.reason)),
      );
    };
    const { life } = begin({ renew });
    await vi.advanceTimersByTimeAsync(1_000);
    expect(limit?.aborted).toBe(true);
    expect(life.signal.aborted).toBe(true);
  });

  test("is renewed sooner after an error, and several attempts fit into what is left", async () => {
    let failing = true;
    const renew = vi.fn(async (ttl: number) => {
      if (failing) throw new Error("no");
      return { ttl, sentAt: instant() };
    });
    const { life } = begin({ renew });
    await vi.advanceTimersByTimeAsync(800);
    expect(renew.mock.calls.length).toBeGreaterThanOrEqual(4);
    expect(events.every((event) => event.type === "renewal-failed")).toBe(true);
    failing = false;
    await vi.advanceTimersByTimeAsync(1_500);
    life.assertHeld();
    life.end("released");
  });

  test("ends at once when the store says that it is not ours", async () => {
    const { life } = begin({ renew: async () => undefined });
    await vi.advanceTimersByTimeAsync(334);
    expect(life.signal.reason).toMatchObject({ why: "taken" });
  });

  test("has ended after a freeze, although its timers have not run", () => {
    const { life } = begin();
    freeze(5_000);
    expect(life.signal.aborted).toBe(false);
    expect(() => life.assertHeld()).toThrow(LockLostError);
    expect(life.signal.aborted).toBe(true);
  });

  test("goes by the monotonic clock when the wall clock is set back", async () => {
    const { life } = begin({ auto: false });
    vi.setSystemTime(Date.now() - 3_600_000);
    await vi.advanceTimersByTimeAsync(990);
    expect(() => life.assertHeld()).toThrow(LockLostError);
  });

  test("goes by the wall clock when the monotonic one stood still", () => {
    const { life } = begin({ auto: false });
    vi.setSystemTime(Date.now() + 2_000);
    expect(() => life.assertHeld()).toThrow(LockLostError);
  });

  test("assertHeld looks ahead without ending what is still held", async () => {
    const { life } = begin({ auto: false });
    await vi.advanceTimersByTimeAsync(500);
    life.assertHeld(400);
    expect(() => life.assertHeld(600)).toThrow(LockLostError);
    expect(life.signal.aborted).toBe(false);
    life.end("released");
  });

  test("ensure asks for more only when there is less", async () => {
    const { life, renew } = begin({ auto: false });
    await life.ensure(500);
    expect(renew).not.toHaveBeenCalled();
    await vi.advanceTimersByTimeAsync(600);
    await life.ensure(500);
    expect(renew).toHaveBeenCalledTimes(1);
    await life.ensure(5_000);
    expect(renew.mock.calls[1]?.[0]).toBeGreaterThan(5_000);
    life.assertHeld(5_000);
    life.end("released");
  });

  test("ensure leaves the answer a third of a ttl to come", async () => {
    const renew: Terms["renew"] = async (ttl) => {
      const sentAt = instant();
      await sleep(300);
      return { ttl, sentAt };
    };
    const { life } = begin({ auto: false, renew });
    const ensuring = life.ensure(5_000);
    await vi.advanceTimersByTimeAsync(300);
    await ensuring;
    life.assertHeld(5_000);
    life.end("released");
  });

  test("ensure rejects when it cannot be had", async () => {
    const { life } = begin({ auto: false, renew: async () => undefined });
    await expect(life.ensure(5_000)).rejects.toMatchObject({ code: "LOCK_LOST" });
    const failing = begin({
      auto: false,
      renew: async () => {
        throw new Error("no");
      },
    });
    await expect(failing.life.ensure(5_000)).rejects.toThrow("no");
    failing.life.assertHeld();
    failing.life.end("released");
    const capped = begin({ auto: false, maxHold: 2_000 });
    const beyond = { code: "LOCK_LOST", why: "max-hold" };
    await expect(capped.life.ensure(5_000)).rejects.toMatchObject(beyond);
    expect(capped.renew).not.toHaveBeenCalled();
    capped.life.assertHeld();
    capped.life.end("released");
  });

  test("takes no span that is none, and asks nobody about it", async () => {
    const { life, renew } = begin({ auto: false });
    const bad = [-1, Number.NaN, Number.POSITIVE_INFINITY, 1e21, "5", "", null, {}] as number[];
    const refused = { name: expect.stringMatching(/^(Type|Range)Error$/) };
    for (const span of bad) {
      await expect(life.ensure(span)).rejects.toMatchObject(refused);
      expect(() => life.assertHeld(span)).toThrow(expect.objectContaining(refused));
    }
    await expect(life.ensure(undefined as unknown as number)).rejects.toThrow(TypeError);
    expect(renew).not.toHaveBeenCalled();
    life.end("released");
  });

  test("asks for no more than is left until maxHold", async () => {
    const sure = begin({ maxHold: 10_000, auto: false });
    await sure.life.ensure(9_990);
    expect(sure.renew.mock.calls[0]?.[0]).toBeGreaterThan(10_000);
    expect(sure.renew.mock.calls[0]?.[0]).toBeLessThan(10_250);
    sure.life.end("released");
    const { life, renew } = begin({ maxHold: 3_000 });
    await vi.advanceTimersByTimeAsync(2_990);
    const asked = renew.mock.calls.map(([ttl]) => ttl);
    expect(Math.max(...asked)).toBe(1_000);
    // The last one was sent less than a third of the ttl ago.
    expect(asked.at(-1)).toBeLessThan(350);
    life.assertHeld();
    await vi.advanceTimersByTimeAsync(20);
    expect(life.signal.reason).toMatchObject({ why: "max-hold" });
  });

  test("that is over when its renewal comes asks for nothing", async () => {
    const { life, renew } = begin({ maxHold: 3_000 });
    freeze(5_000);
    await vi.advanceTimersByTimeAsync(400);
    expect(renew).not.toHaveBeenCalled();
    expect(life.signal.aborted).toBe(true);
  });

  test("is never made shorter by a renewal", async () => {
    const { life } = begin();
    await life.ensure(60_000);
    await vi.advanceTimersByTimeAsync(1_000);
    life.assertHeld(58_000);
    life.end("released");
  });

  test("ends at maxHold, however well it is renewed", async () => {
    const { life } = begin({ maxHold: 3_000 });
    await vi.advanceTimersByTimeAsync(2_990);
    life.assertHeld();
    await vi.advanceTimersByTimeAsync(20);
    expect(life.signal.reason).toMatchObject({ why: "max-hold" });
  });

  test("stays ended for its first reason", async () => {
    const { life, renew } = begin();
    life.end("released");
    life.end("expired");
    expect(life.signal.reason).toMatchObject({ why: "released" });
    expect(events).toEqual([]);
    await vi.advanceTimersByTimeAsync(5_000);
    expect(renew).not.toHaveBeenCalled();
  });

  test("says why it has ended with one error, whenever its signal is asked for", async () => {
    for (const asksBefore of [true, false]) {
      const { life } = begin({ auto: false });
      const before = asksBefore ? life.signal : undefined;
      const told: unknown[] = [];
      life.onEnd((why) => told.push(why, life.signal.aborted));
      await vi.advanceTimersByTimeAsync(1_000);
      expect(told).toEqual(["expired", true]);
      expect(life.ended).toBe("expired");
      expect(life.signal).toBe(before ?? life.signal);
      expect(life.signal.reason).toMatchObject({ code: "LOCK_LOST", why: "expired" });
      let thrown: unknown;
      try {
        life.assertHeld();
      } catch (error) {
        thrown = error;
      }
      expect(thrown).toBe(life.signal.reason);
    }
  });

  test("a renewal that answers after the end does not bring it back", async () => {
    const { promise, resolve } = Promise.withResolvers<Grant>();
    const { life } = begin({ renew: () => promise });
    const sentAt = instant();
    await vi.advanceTimersByTimeAsync(400);
    life.end("released");
    resolve({ ttl: 10_000, sentAt });
    await vi.advanceTimersByTimeAsync(5_000);
    expect(life.remaining()).toBe(0);
  });
});

test("a deadline goes by whichever clock says less is left", async () => {
  const deadline = deadlineIn(1_000);
  await vi.advanceTimersByTimeAsync(400);
  expect(deadline.remaining()).toBe(600);
  vi.setSystemTime(Date.now() + 300);
  expect(deadline.remaining()).toBe(300);
  vi.setSystemTime(Date.now() - 3_600_000);
  expect(deadline.remaining()).toBe(600);
});
