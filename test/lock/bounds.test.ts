import { describe, expect, test, vi } from "vitest";
import { sleep } from "../../core/lock/abort.ts";
import { deadlineIn } from "../../core/lock/duration.ts";
import { StoreUnavailableError, UnknownOutcomeError } from "../../core/lock/errors.ts";
import type { LockStore } from "../../core/lock/lock.ts";
import { pollingBackend } from "../../core/lock/polling.ts";
import { lockStore, pollingStore } from "../../core/lock/store.ts";
import { type Memory, memoryClaims, newMemory } from "../../core/stores/memory/locks.ts";
import { type QueueCall, QueueMemory, queueStore } from "../support/memory-queues.ts";
import { useVirtualClock } from "../support/timers.ts";
import { type Call as ClaimCall, wrap } from "./wrapped-claims.ts";

useVirtualClock();

type Call = ClaimCall | "close" | QueueCall;

/**
 * Returns a wire that does not answer `silent` calls until it is mended. Calls over a deaf wire also ignore their signal.
 * Pending calls are executed when the wire is mended.
 */
function silentWire(silent: Set<Call>, { isDeaf = false } = {}) {
  const { promise: mended, resolve: mend } = Promise.withResolvers<void>();
  const calls: Call[] = [];
  const over = async <T>(call: Call, work: () => Promise<T>, signal?: AbortSignal) => {
    calls.push(call);
    if (!silent.has(call)) return work();
    const answer = mended.then(work);
    if (isDeaf || !signal) return answer;
    answer.catch(() => {});
    const given = Promise.withResolvers<never>();
    const lost =
      call === "freeIn"
        ? new StoreUnavailableError("the wire", "no answer in time")
        : new UnknownOutcomeError("the wire", "a request was executed");
    signal.addEventListener("abort", () => given.reject(lost), { once: true });
    return Promise.race([answer, given.promise]);
  };
  return {
    over,
    calls,
    silent,
    mend: async () => {
      silent.clear();
      mend();
      await vi.advanceTimersByTimeAsync(20_000);
    },
  };
}

/** Returns a store on a memory behind a silent wire. */
function silenced(memory: Memory, silent: Set<Call>, how = {}) {
  const wire = silentWire(silent, how);
  const claims = wrap(memory, wire.over);
  const store = pollingStore({ ...claims, close: () => wire.over("close", () => claims.close()) });
  return { ...wire, store, left: () => memory.locks.size };
}

/** The same for locks that stand in queues. */
function silencedQueues(silent: Set<Call>, how = {}) {
  const memory = new QueueMemory();
  const wire = silentWire(silent, how);
  return { ...wire, store: queueStore(memory, wire.over), left: () => memory.entries.length };
}

/** Resolves to the outcome of the promise, and the virtual milliseconds until then. */
async function timed<T>(promise: Promise<T>) {
  const start = performance.now();
  let outcome: { readonly value?: T; readonly code?: string } | undefined;
  promise.then(
    (value) => {
      outcome = { value };
    },
    (error) => {
      outcome = { code: error.code ?? String(error) };
    },
  );
  while (outcome === undefined) await vi.advanceTimersByTimeAsync(10);
  return { ...outcome, after: performance.now() - start };
}

const everything = () =>
  new Set<Call>([
    ...(["claim", "renew", "drop", "freeIn", "close"] as const),
    ...(["open", "keepAlive", "enter", "look", "leave", "move"] as const),
  ]);

const unanswered = expect.stringMatching(/^(STORE_UNAVAILABLE|UNKNOWN_OUTCOME)$/);

const stores = {
  claims: (silent: Set<Call>, how: object) => silenced(newMemory(), silent, how),
  queues: silencedQueues,
};

/** Closes the store, and lets the timers of its idle sessions fire. */
async function closed(store: LockStore) {
  await store.close();
  await vi.advanceTimersByTimeAsync(60_000);
}

describe.each([
  { kind: "claims", isDeaf: false },
  { kind: "claims", isDeaf: true },
  { kind: "queues", isDeaf: false },
  { kind: "queues", isDeaf: true },
] as const)("on a silent store of $kind, deaf: $isDeaf,", ({ kind, ...how }) => {
  const ttl = 30_000;
  const make = stores[kind];
  const asks: readonly [string, number, (store: LockStore) => Promise<unknown>][] = [
    ["tryLock", 2_000, (store) => store.tryLock("a", { ttl })],
    ["lock without a wait", 2_000, (store) => store.lock("a", { ttl, wait: 0 })],
    ["lock", 500, (store) => store.lock("a", { ttl, wait: 500 })],
    ["lock", 5_000, (store) => store.lock("a", { ttl, wait: 5_000 })],
    ["lockAll", 500, (store) => store.lockAll(["a", "b"], { ttl, wait: 500 })],
    [
      "tryLock with a deadline",
      300,
      (store) => store.tryLock("a", { ttl, deadline: deadlineIn(300) }),
    ],
    [
      "lock with a deadline",
      300,
      (store) => store.lock("a", { ttl, wait: 60_000, deadline: deadlineIn(300) }),
    ],
    [
      "a lock for an invocation",
      300,
      (store) => store.lock("a", { ttl: "invocation", wait: 60_000, deadline: deadlineIn(300) }),
    ],
  ];

  describe.each([{ wasUsed: false }, { wasUsed: true }])(
    "used before: $wasUsed,",
    ({ wasUsed }) => {
      test.each(asks)("%s ends within %i ms and a half second", async (_, span, ask) => {
        const { store, silent, left, mend } = make(new Set(), how);
        if (wasUsed) await (await store.lock("b", { ttl, wait: 0 })).unlock();
        for (const call of everything()) silent.add(call);
        const { code, after } = await timed(ask(store));
        expect(code).toEqual(kind === "claims" ? "UNKNOWN_OUTCOME" : unanswered);
        expect(after).toBeLessThanOrEqual(span + 500);
        await mend();
        expect(left()).toBe(0);
        await closed(store);
      });
    },
  );

  test("an aborted wait ends within two seconds and a half", async () => {
    const { store, mend } = make(everything(), how);
    const caller = new AbortController();
    const waiting = store.lock("a", { ttl, wait: 60_000, signal: caller.signal });
    waiting.catch(() => {});
    await vi.advanceTimersByTimeAsync(100);
    caller.abort();
    const { code, after } = await timed(waiting);
    expect(code).toEqual(kind === "claims" ? "UNKNOWN_OUTCOME" : expect.anything());
    expect(after).toBeLessThanOrEqual(2_500);
    await mend();
    await closed(store);
  });

  test("ensure and unlock end with their deadline", async () => {
    const { store, silent, left, mend } = make(new Set(), how);
    const deadline = { remaining: () => 300 };
    const lock = await store.lock("a", { ttl, wait: 0, renew: false, deadline });
    for (const call of everything()) silent.add(call);
    const ensured = await timed(lock.ensure(60_000));
    expect(ensured.code).toBe("UNKNOWN_OUTCOME");
    expect(ensured.after).toBeLessThanOrEqual(800);
    const unlocked = await timed(lock.unlock());
    expect(unlocked.code).toBe("UNKNOWN_OUTCOME");
    expect(unlocked.after).toBeLessThanOrEqual(800);
    await mend();
    expect(left()).toBe(0);
    await closed(store);
  });

  test("ensure without a deadline ends within two seconds and a half, also behind another renewal", async () => {
    const { store, silent, mend } = make(new Set(), how);
    const lock = await store.lock("a", { ttl, wait: 0 });
    for (const call of everything()) silent.add(call);
    await vi.advanceTimersByTimeAsync(ttl / 3 + 1_000);
    const { code, after } = await timed(lock.ensure(60_000));
    expect(code).toBeDefined();
    expect(after).toBeLessThanOrEqual(2_500);
    await mend();
    await closed(store);
  });

  test("close ends within two seconds, with any calls under way", async () => {
    const { store, silent, mend } = make(new Set(), how);
    await store.lock("held", { ttl, wait: 0 });
    for (const call of everything()) silent.add(call);
    const waits = [
      store.lock("a", { ttl, wait: 60_000 }),
      store.lock("a", { ttl, wait: 60_000 }),
      store.tryLock("b", { ttl }),
    ];
    const codes = Promise.all(waits.map((wait) => wait.catch(({ code }) => code)));
    await vi.advanceTimersByTimeAsync(500);
    const { code, after } = await timed(store.close());
    expect(code).toBeUndefined();
    expect(after).toBeLessThanOrEqual(2_000);
    await mend();
    const last = kind === "claims" ? "UNKNOWN_OUTCOME" : expect.anything();
    expect(await codes).toEqual(["STORE_CLOSED", "STORE_CLOSED", last]);
    await closed(store);
  });
});

test("a claim that can be withdrawn in time rejects as unavailable, and nothing is held", async () => {
  const memory = newMemory();
  const { store, calls } = silenced(memory, new Set<Call>(["claim"]));
  const { code, after } = await timed(store.lock("a", { ttl: 30_000, wait: 500 }));
  expect(code).toBe("STORE_UNAVAILABLE");
  expect(after).toBeLessThanOrEqual(1_000);
  expect(calls).toContain("drop");
  await store.close();
});

test('a store that falls silent after it has answered "busy" ends the wait with LOCK_TIMEOUT', async () => {
  const memory = newMemory();
  const holder = await pollingStore(memoryClaims(memory)).lock("a", { ttl: 60_000, wait: 0 });
  const { store, silent } = silenced(memory, new Set());
  const waiting = store.lock("a", { ttl: 30_000, wait: 3_000 });
  waiting.catch(() => {});
  await vi.advanceTimersByTimeAsync(1_000);
  silent.add("freeIn");
  expect(await timed(waiting)).toMatchObject({ code: "LOCK_TIMEOUT" });
  await holder.unlock();
  await store.close();
});

test("a hold that a backend grants after its caller has given up is released", async () => {
  const memory = newMemory();
  const backend = pollingBackend(memoryClaims(memory), { label: "late", command: undefined });
  const store = lockStore({
    ...backend,
    async acquire(request) {
      const hold = await backend.acquire(request);
      await sleep(5_000);
      return hold;
    },
  });
  expect(await timed(store.tryLock("a", { ttl: 60_000 }))).toMatchObject({
    code: "UNKNOWN_OUTCOME",
  });
  expect(memory.locks.size).toBe(1);
  await vi.advanceTimersByTimeAsync(5_000);
  expect(memory.locks.size).toBe(0);
  await store.close();
});

test("one attempt leaves time for a second one on a working connection", async () => {
  for (const [ask, bound] of [
    [(store: LockStore) => store.tryLock("a", { ttl: 30_000 }), 1_500],
    [(store: LockStore) => store.lock("a", { ttl: 30_000, wait: 60_000 }), 2_500],
    [(store: LockStore) => store.lock("a", { ttl: 900, wait: 60_000, renew: false }), 800],
  ] as const) {
    const { store, silent, calls } = silenced(newMemory(), new Set<Call>(["claim"]));
    const locking = ask(store);
    await vi.advanceTimersByTimeAsync(0);
    silent.delete("claim");
    const { value, after } = await timed(locking);
    expect(value).toBeDefined();
    expect(after).toBeLessThanOrEqual(bound);
    expect(calls).toEqual(["claim", "drop", "claim"]);
    await store.close();
  }
});

test("a renewal has several attempts, each of two seconds at the most", async () => {
  const { store, silent, calls } = silenced(newMemory(), new Set<Call>(["renew"]));
  const lock = await store.lock("a", { ttl: 9_000, wait: 0 });
  await vi.advanceTimersByTimeAsync(8_000);
  expect(calls.filter((call) => call === "renew").length).toBeGreaterThanOrEqual(2);
  silent.clear();
  await vi.advanceTimersByTimeAsync(10_000);
  lock.assertHeld();
  await store.close();
});

test("close waits for a release that goes on in the background", async () => {
  const memory = newMemory();
  const { store, silent } = silenced(memory, new Set<Call>(["drop"]));
  const lock = await store.lock("a", { ttl: 30_000, wait: 0, deadline: { remaining: () => 100 } });
  expect((await timed(lock.unlock())).code).toBe("UNKNOWN_OUTCOME");
  await vi.advanceTimersByTimeAsync(1_000);
  silent.clear();
  expect(memory.locks.size).toBe(1);
  await timed(store.close());
  expect(memory.locks.size).toBe(0);
});
