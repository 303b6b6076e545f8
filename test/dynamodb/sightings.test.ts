import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { Sightings } from "../../core/stores/dynamodb/locks/sightings.ts";

const held = { owner: "a", version: "7", ttl: "1000", delay: "500", token: "3" };

beforeEach(() => {
  vi.useFakeTimers({ toFake: ["performance", "Date", "setTimeout"] });
});

afterEach(() => {
  vi.useRealTimers();
});

test("a version expires after one ttl of the observer's monotonic clock, whatever the wall clock says", () => {
  const sightings = new Sightings();
  expect(sightings.see("job", held)).toEqual({ expiresIn: 1_000, freeIn: 1_500 });
  vi.setSystemTime(Date.now() + 86_400_000);
  expect(sightings.see("job", held)).toEqual({ expiresIn: 1_000, freeIn: 1_500 });
  vi.advanceTimersByTime(1_499);
  expect(sightings.expired("job")).toBeUndefined();
  vi.advanceTimersByTime(1);
  expect(sightings.expired("job")).toEqual({ owner: "a", version: "7" });
});

test("a renewal, which changes the version, starts the ttl anew", () => {
  const sightings = new Sightings();
  sightings.see("job", held);
  vi.advanceTimersByTime(1_400);
  sightings.see("job", { ...held, version: "8" });
  vi.advanceTimersByTime(1_499);
  expect(sightings.expired("job")).toBeUndefined();
  vi.advanceTimersByTime(1);
  expect(sightings.expired("job")).toEqual({ owner: "a", version: "8" });
});

test("the same version of another owner starts the ttl anew: the item was deleted meanwhile", () => {
  const sightings = new Sightings();
  sightings.see("job", held);
  vi.advanceTimersByTime(1_400);
  sightings.see("job", { ...held, owner: "b" });
  vi.advanceTimersByTime(1_000);
  expect(sightings.expired("job")).toBeUndefined();
});

test("a free lock has not expired, and a lock that was never read has not either", () => {
  const sightings = new Sightings();
  const { owner: _, ...free } = held;
  expect(sightings.see("job", free)).toBeUndefined();
  expect(sightings.see("job", undefined)).toBeUndefined();
  expect(sightings.expired("job")).toBeUndefined();
  expect(sightings.expired("other")).toBeUndefined();
});

test("a client remembers the last 10,000 locks", () => {
  const sightings = new Sightings();
  for (let i = 0; i <= 10_000; i += 1) sightings.see(`job-${i}`, held);
  vi.advanceTimersByTime(2_000);
  expect(sightings.expired("job-0")).toBeUndefined();
  expect(sightings.expired("job-1")).toEqual({ owner: "a", version: "7" });
});
