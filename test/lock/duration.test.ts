import { expect, test } from "vitest";
import { type Duration, deadlineIn, toMillis } from "../../core/lock/duration.ts";
import { openMemory } from "../../core/stores/memory/index.ts";

test("a duration is a number of milliseconds or a text with a unit", () => {
  const durations: readonly [Duration, number][] = [
    [0, 0],
    [1.5, 1.5],
    ["200ms", 200],
    ["8s", 8_000],
    ["1.5s", 1_500],
    ["15m", 900_000],
    ["24h", 86_400_000],
    ["7d", 604_800_000],
  ];
  for (const [duration, millis] of durations) expect(toMillis("wait", duration)).toBe(millis);
});

test("a value that is not a duration is refused with the option's name", () => {
  for (const wrong of ["8", "", "8 s", "-1s", "1e3ms", "soon", Number.NaN, null, {}, [8], 8n]) {
    expect(() => toMillis("wait", wrong as Duration)).toThrow(TypeError);
    expect(() => toMillis("wait", wrong as Duration)).toThrow(
      /^wait must be milliseconds or a text/,
    );
  }
});

test("a duration outside of its limits is refused with the option's name and the limits", () => {
  for (const wrong of [-1, 99, 5_001, "6s", Number.POSITIVE_INFINITY] as const) {
    expect(() => toMillis("timeout", wrong, 100, 5_000)).toThrow(RangeError);
    expect(() => toMillis("timeout", wrong, 100, 5_000)).toThrow(/^timeout must be 100 to 5000 ms/);
  }
});

test("the options of a lock and its handle take durations", async () => {
  await using store = await openMemory();
  const lock = await store.locks.lock("a", { ttl: "10s", wait: "1s", maxHold: "1h" });
  expect((await store.locks.inspect("a")).expiresIn).toBeGreaterThan(9_000);
  lock.assertHeld("5s");
  await lock.ensure("20s");
  expect(() => lock.assertHeld("60s")).toThrow("a");
  const waiting = store.locks.lock("a", { ttl: "10s", wait: "10ms" });
  await expect(waiting).rejects.toMatchObject({ code: "LOCK_TIMEOUT" });
  await expect(waiting).rejects.toThrow("10 ms");
  for (const [option, wrong] of [
    ["ttl", { ttl: "5", wait: 0 }],
    ["ttl", { ttl: "1ms", wait: 0 }],
    ["wait", { ttl: "5s", wait: "2d" }],
    ["maxHold", { ttl: "5s", wait: 0, maxHold: "0s" }],
    ["lockDelay", { ttl: "5s", wait: 0, lockDelay: "soon" }],
  ] as const) {
    await expect(store.locks.lock("b", wrong as never)).rejects.toThrow(`${option} must be `);
  }
});

test("a deadline takes a duration, and refuses what is none", () => {
  const left = deadlineIn("2m").remaining();
  expect(left).toBeGreaterThan(60_000);
  expect(left).toBeLessThanOrEqual(120_000);
  expect(() => deadlineIn("soon" as never)).toThrow(
    'span must be milliseconds or a text such as "8s"',
  );
  expect(() => deadlineIn(-1)).toThrow(RangeError);
});
