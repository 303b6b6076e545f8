import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { StoreUnavailableError } from "../../core/lock/errors.ts";
import { pollingStore } from "../../core/lock/store.ts";
import { memoryClaims, newMemory } from "../../core/stores/memory/locks.ts";
import { IncidentWriter, readIncidents } from "../../functions/telemetry/incident-records.ts";

beforeEach(() => {
  vi.useFakeTimers();
});

afterEach(() => {
  vi.useRealTimers();
});

/** A store of one process whose reads fail, or are never answered, on request. */
function breakableStore() {
  const claims = memoryClaims(newMemory());
  const state = { isDown: false, isSilent: false, reads: 0 };
  const locks = pollingStore({
    ...claims,
    inspect: async (name) => {
      state.reads += 1;
      if (state.isSilent) return new Promise(() => {});
      if (state.isDown) throw new StoreUnavailableError("memory", "down");
      return claims.inspect(name);
    },
  });
  const writer = new IncidentWriter(() => locks);
  const leave = (lock: string) => writer.leave({ kind: "lost", lock, why: "a test" });
  const read = async () => (await readIncidents(locks)).map(({ lock }) => lock).toSorted();
  return { locks, state, leave, read };
}

test("without an incident, the store gets no request for one", async () => {
  const { locks, state } = breakableStore();
  await locks.withLock("job", { ttl: 1_000, wait: 0 }, async () => {});
  expect(state.reads).toBe(0);
});

test("an incident is written once the store is available again", async () => {
  const { state, leave, read } = breakableStore();
  state.isDown = true;
  const left = leave("job");
  await vi.advanceTimersByTimeAsync(5_000);
  state.isDown = false;
  await vi.advanceTimersByTimeAsync(20_000);
  await left;
  expect(await read()).toEqual(["job"]);
});

test("an incident that a silent store does not take is lost after a minute, and nobody gets an error", async () => {
  const { state, leave, read } = breakableStore();
  state.isSilent = true;
  const left = leave("job");
  await vi.advanceTimersByTimeAsync(60_000);
  await left;
  state.isSilent = false;
  expect(await read()).toEqual([]);
});

test("of many incidents at once, the first five are written", async () => {
  const { leave, read } = breakableStore();
  const leaving = Array.from({ length: 100 }, (_, i) => leave(`job-${i}`));
  await Promise.all(leaving);
  await vi.advanceTimersByTimeAsync(0);
  expect(await read()).toEqual(["job-0", "job-1", "job-2", "job-3", "job-4"]);
});

test("an incident is read for ten minutes", async () => {
  const { leave, read } = breakableStore();
  await leave("job");
  await vi.advanceTimersByTimeAsync(599_000);
  expect(await read()).toEqual(["job"]);
  await vi.advanceTimersByTimeAsync(1_000);
  expect(await read()).toEqual([]);
});

test("the end of a client does not wait for a store that is down", async () => {
  const { locks, state, leave } = breakableStore();
  state.isDown = true;
  const left = leave("job");
  await vi.advanceTimersByTimeAsync(100);
  let isClosed = false;
  void locks.close().then(() => {
    isClosed = true;
  });
  await vi.advanceTimersByTimeAsync(10);
  expect(isClosed).toBe(true);
  // The next attempt is the last one.
  await vi.advanceTimersByTimeAsync(2_000);
  await left;
});
