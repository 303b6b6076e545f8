import { writeFile } from "node:fs/promises";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { HIGHEST_GENERATION } from "../../core/lock/checks.ts";
import { LockLostError, LockTimeoutError } from "../../core/lock/errors.ts";
import { compareFence, type Fence } from "../../core/lock/fence.ts";
import type { Lock, LockStore } from "../../core/lock/lock.ts";
import type { StoreOptions } from "../../core/lock/store.ts";
import { contend } from "../support/contend.ts";
import { runScript } from "../support/script.ts";
import { type StoreUnderTest, temporaryFile } from "../support/under-test.ts";
import { pause, until } from "../support/until.ts";

/** A ttl that no pause of a busy machine outlasts. */
const LONG = 20_000;

let names = 0;

function freshName(): string {
  names += 1;
  return `lock-${process.pid}-${names}`;
}

/** Every property that a lock here must have, on one store. No option turns a test off; traits choose. */
export function describeLockStore(name: string, make: () => Promise<StoreUnderTest>): void {
  describe(`a lock on ${name}`, () => {
    let store: StoreUnderTest;

    /** A ttl to wait for. */
    let short: number;
    const opened: LockStore[] = [];

    beforeAll(async () => {
      store = await make();
      short = Math.max(300, open().traits.minTtl);
    });

    afterEach(async () => {
      await Promise.all(opened.splice(0).map((client) => client.close()));
    });

    afterAll(() => store.close());

    const open = (options?: StoreOptions) => {
      const client = store.open(options);
      opened.push(client);
      return client;
    };

    const openOverWire = async () => {
      const { store: client, wire } = await store.openOverWire();
      opened.push(client);
      return { client, wire };
    };

    const tryLock = (client: LockStore, lockName: string) =>
      client.tryLock(lockName, { ttl: LONG });

    /** That nobody holds or waits: another client gets the lock at once. */
    const expectFree = async (lockName: string) => {
      const lock = await tryLock(open(), lockName);
      expect(lock).toBeDefined();
      await lock?.unlock();
    };

    describe("exclusion", () => {
      test("one holder at a time, for other clients and for the same one", async () => {
        const [ours, theirs] = [open(), open()];
        const name = freshName();
        const lock = await ours.lock(name, { ttl: LONG, wait: 0 });
        expect(await tryLock(theirs, name)).toBeUndefined();
        expect(await tryLock(ours, name)).toBeUndefined();
        expect(await lock.unlock()).toBe("released");
        await expectFree(name);
      });

      test("20 contenders in two clients and four processes lose no update", async () => {
        const { file, remove } = await temporaryFile();
        const name = freshName();
        await writeFile(file, "0");
        const here = [open(), open()].map((client) =>
          contend(client, { name, file, contenders: 10, rounds: 5 }),
        );
        const url = store.url;
        const processes = url
          ? [1, 2, 3, 4].map(() => runScript("contend", url, name, file, "5", "5"))
          : [];
        await Promise.all(here);
        for (const { ended } of processes) expect(await ended).toBe(0);
        const { readFile } = await import("node:fs/promises");
        expect(await readFile(file, "utf8")).toBe(String(100 + processes.length * 25));
        await remove();
      }, 120_000);

      test("several names are taken all or none, in whatever order they are given", async () => {
        const [ours, theirs] = [open(), open()];
        const [a, b, c] = [freshName(), freshName(), freshName()];
        const held = await theirs.lock(b, { ttl: LONG, wait: 0 });
        await expect(ours.lockAll([c, b, a], { ttl: LONG, wait: 0 })).rejects.toThrow(
          LockTimeoutError,
        );
        await expectFree(a);
        await expectFree(c);
        await held.unlock();
        const all = await ours.lockAll([c, b, a, b], { ttl: LONG, wait: 1_000 });
        expect(all.names).toEqual([a, b, c].sort());
        expect([...all.fences.keys()]).toEqual(all.names);
        for (const one of [a, b, c]) expect(await tryLock(theirs, one)).toBeUndefined();
        expect(await all.unlock()).toBe("released");
        for (const one of [a, b, c]) await expectFree(one);
      });

      test("opposite orders of several names do not deadlock", async () => {
        const pairs = [freshName(), freshName(), freshName()];
        const rounds = async (client: LockStore, order: readonly string[]) => {
          for (let round = 0; round < 10; round += 1) {
            const all = await client.lockAll(order, { ttl: LONG, wait: LONG });
            await all.unlock();
          }
        };
        await Promise.all([
          rounds(open(), pairs),
          rounds(open(), [...pairs].reverse()),
          rounds(open(), pairs.slice(1)),
        ]);
        for (const name of pairs) await expectFree(name);
      });
    });

    describe("fences", () => {
      test("rise strictly over 1,000 hand-overs between two clients", async () => {
        const clients = [open(), open()] as const;
        const name = freshName();
        let last: Fence | undefined;
        for (let i = 0; i < 1_000; i += 1) {
          const lock = await clients[i % 2 === 0 ? 0 : 1].lock(name, { ttl: LONG, wait: LONG });
          if (last) expect(compareFence(last, lock.fence)).toBe(-1);
          expect(last === undefined || String(last) < String(lock.fence)).toBe(true);
          last = lock.fence;
          await lock.unlock();
        }
      }, 60_000);

      test("rise across expiry, a lost record, and a new client", async () => {
        const name = freshName();
        const fences: Fence[] = [];
        const take = async (options: { renew: boolean; ttl: number }) => {
          const lock = await open().lock(name, { ...options, wait: 5_000 });
          fences.push(lock.fence);
          return lock;
        };
        await take({ renew: false, ttl: short });
        await take({ renew: true, ttl: LONG });
        await store.erase(name);
        const last = await take({ renew: true, ttl: LONG });
        await last.unlock();
        await take({ renew: true, ttl: LONG });
        for (let i = 1; i < fences.length; i += 1) {
          expect(compareFence(fences[i - 1] as Fence, fences[i] as Fence)).toBe(-1);
        }
      });

      test("of a later generation are above all earlier ones", async () => {
        const client = open();
        const name = freshName();
        const before = await client.lock(name, { ttl: LONG, wait: 0 });
        await before.unlock();
        const generation = await client.raiseGeneration();
        expect(generation).toBeGreaterThan(before.fence.generation);
        const after = await client.lock(name, { ttl: LONG, wait: 0 });
        expect(after.fence.generation).toBe(generation);
        expect(compareFence(before.fence, after.fence)).toBe(-1);
        expect(await client.raiseGeneration(generation + 5)).toBe(generation + 5);
        const fresh = await client.lock(freshName(), { ttl: LONG, wait: 0 });
        expect(fresh.fence.generation).toBe(generation + 5);
      });

      test("of the highest generation stay the highest: it cannot be raised further", async () => {
        const own = await make();
        const client = own.open();
        const name = freshName();
        expect(await client.raiseGeneration(HIGHEST_GENERATION)).toBe(HIGHEST_GENERATION);
        const before = await client.lock(name, { ttl: LONG, wait: 0 });
        await before.unlock();
        for (const least of [undefined, 0, HIGHEST_GENERATION]) {
          await expect(client.raiseGeneration(least)).rejects.toThrow(RangeError);
        }
        const after = await client.lock(name, { ttl: LONG, wait: 0 });
        expect(after.fence.generation).toBe(HIGHEST_GENERATION);
        expect(compareFence(before.fence, after.fence)).toBe(-1);
        await client.close();
        await own.close();
      });
    });

    describe("time", () => {
      test("a held lock outlives its ttl while it is renewed", async () => {
        const [ours, theirs] = [open(), open()];
        const name = freshName();
        const lock = await ours.lock(name, { ttl: 2 * short, wait: 0 });
        const end = performance.now() + 8 * short;
        while (performance.now() < end) {
          expect(await tryLock(theirs, name)).toBeUndefined();
          await pause(short / 4);
        }
        lock.assertHeld();
        expect(await lock.unlock()).toBe("released");
      });

      test("an unrenewed lock expires; its old holder's release is refused and harms nobody", async () => {
        const [ours, theirs] = [open(), open()];
        const name = freshName();
        const stale = await ours.lock(name, { ttl: short, wait: 0, renew: false });
        const lock = await theirs.lock(name, { ttl: LONG, wait: 5_000 });
        // A timer that is due comes first.
        await pause(0);
        expect(stale.signal.aborted).toBe(true);
        expect(() => stale.assertHeld()).toThrow(LockLostError);
        expect(await stale.unlock()).toBe("was-lost");
        expect(await tryLock(ours, name)).toBeUndefined();
        lock.assertHeld();
        expect(await lock.unlock()).toBe("released");
      });

      test("a killed holder's lock is free within its ttl and a second", async () => {
        const { url } = store;
        if (url === undefined) {
          expect(open().traits.shared).toBe(false);
          return;
        }
        const name = freshName();
        const ttl = Math.max(1_000, short);
        using holder = runScript("hold", url, name, String(ttl));
        await holder.line();
        holder.child.kill("SIGKILL");
        const killedAt = performance.now();
        const lock = await open().lock(name, { ttl: LONG, wait: 10_000 });
        expect(performance.now() - killedAt).toBeLessThan(ttl + 1_000);
        await lock.unlock();
      });

      test("the signal aborts no later than the store's expiry when renewal is cut", async () => {
        const { client, wire } = await openOverWire();
        const other = open();
        const name = freshName();
        const lock = await client.lock(name, { ttl: 3 * short, wait: 0 });
        await pause(2 * short);
        lock.assertHeld();
        wire.cut();
        let abortedAt = 0;
        lock.signal.addEventListener("abort", () => {
          abortedAt = performance.now();
        });
        const next = await other.lock(name, { ttl: LONG, wait: 10_000 });
        await pause(0);
        expect(abortedAt).toBeGreaterThan(0);
        expect(abortedAt).toBeLessThanOrEqual(performance.now());
        expect(lock.signal.reason).toBeInstanceOf(LockLostError);
        expect(compareFence(lock.fence, next.fence)).toBe(-1);
        wire.mend();
        expect(await lock.unlock()).toBe("was-lost");
        next.assertHeld();
      });

      test("a taken lock is noticed by its holder at the next renewal", async () => {
        const name = freshName();
        const lock = await open().lock(name, { ttl: 3 * short, wait: 0 });
        await store.erase(name);
        await until(() => lock.signal.aborted);
        expect(lock.signal.reason).toMatchObject({ code: "LOCK_LOST", why: "taken" });
        expect(await lock.unlock()).toBe("was-lost");
      });

      test("ensure renews for as long as it is told", async () => {
        const [ours, theirs] = [open(), open()];
        const name = freshName();
        const lock = await ours.lock(name, { ttl: short, wait: 0, renew: false });
        await lock.ensure(2_000);
        expect(() => lock.assertHeld(1_500)).not.toThrow();
        await pause(2 * short);
        expect(await tryLock(theirs, name)).toBeUndefined();
        expect(await lock.unlock()).toBe("released");
      });

      test("a renewal never brings an expiry forward", async () => {
        const [ours, theirs] = [open(), open()];
        const name = freshName();
        const lock = await ours.lock(name, { ttl: short, wait: 0 });
        await lock.ensure(LONG);
        await pause(short);
        const { expiresIn = 0 } = await theirs.inspect(name);
        expect(expiresIn).toBeGreaterThan(LONG / 2);
        lock.assertHeld(LONG / 2);
      });

      test("maxHold ends a hold that is renewed", async () => {
        const [ours, theirs] = [open(), open()];
        const name = freshName();
        const lock = await ours.lock(name, { ttl: short, wait: 0, maxHold: 2 * short });
        const next = await theirs.lock(name, { ttl: LONG, wait: 5_000 });
        expect(lock.signal.reason).toMatchObject({ code: "LOCK_LOST", why: "max-hold" });
        next.assertHeld();
      });

      test("lockDelay keeps an expired lock from others, and not one that was given back", async () => {
        const [ours, theirs] = [open(), open()];
        const options = { ttl: short, wait: 0, renew: false, lockDelay: 2 * short };
        if (!ours.traits.lockDelay) {
          await expect(ours.lock(freshName(), options)).rejects.toThrow(RangeError);
          return;
        }
        const name = freshName();
        const lostAt = performance.now() + short;
        await ours.lock(name, options);
        const next = await theirs.lock(name, { ttl: LONG, wait: 5_000 });
        expect(performance.now()).toBeGreaterThan(lostAt + 2 * short - 50);
        await next.unlock();
        const returned = await ours.lock(name, options);
        await returned.unlock();
        await expectFree(name);
      });
    });

    describe("waiting", () => {
      test("ends with the lock when it is given back", async () => {
        const [ours, theirs] = [open(), open()];
        const name = freshName();
        const lock = await ours.lock(name, { ttl: LONG, wait: 0 });
        const waiting = theirs.lock(name, { ttl: LONG, wait: LONG });
        await pause(50);
        await lock.unlock();
        const next = await waiting;
        expect(compareFence(lock.fence, next.fence)).toBe(-1);
        await next.unlock();
      });

      test("that takes too long leaves nothing behind", async () => {
        const [ours, theirs] = [open(), open()];
        const name = freshName();
        const lock = await ours.lock(name, { ttl: LONG, wait: 0 });
        const wait = theirs.lock(name, { ttl: LONG, wait: 100 });
        await expect(wait).rejects.toMatchObject({ code: "LOCK_TIMEOUT", retryable: true });
        await lock.unlock();
        await expectFree(name);
      });

      test("that is aborted, at whatever moment, rejects with the caller's reason and leaves nothing behind", async () => {
        const [ours, theirs] = [open(), open()];
        for (let i = 0; i < 30; i += 1) {
          const name = freshName();
          const lock = i % 3 === 0 ? undefined : await ours.lock(name, { ttl: LONG, wait: 0 });
          const reason = [{ because: i }, null, "enough", new Error("enough")][i % 4];
          const caller = new AbortController();
          const waiting = theirs.lock(name, { ttl: LONG, wait: LONG, signal: caller.signal });
          const settled = waiting.then(
            (got) => got.unlock(),
            (error) => expect(error).toBe(reason),
          );
          await pause(i % 10);
          caller.abort(reason);
          await settled;
          await lock?.unlock();
          await expectFree(name);
        }
      });

      test("is in order within a client", async () => {
        const [ours, theirs] = [open(), open()];
        const name = freshName();
        const first = await theirs.lock(name, { ttl: LONG, wait: 0 });
        const order: number[] = [];
        const waiters = [1, 2, 3, 4, 5].map(async (place) => {
          const lock = await ours.lock(name, { ttl: LONG, wait: LONG });
          order.push(place);
          await lock.unlock();
        });
        await first.unlock();
        await Promise.all(waiters);
        expect(order).toEqual([1, 2, 3, 4, 5]);
      });

      test("is bounded in number", async () => {
        const client = open({ maxWaiters: 2 });
        const name = freshName();
        const lock = await client.lock(name, { ttl: LONG, wait: 0 });
        const waiters = [1, 2].map(() => client.lock(name, { ttl: LONG, wait: LONG }));
        await expect(client.lock(name, { ttl: LONG, wait: LONG })).rejects.toMatchObject({
          code: "TOO_MANY_WAITERS",
        });
        await lock.unlock();
        for (const waiter of waiters) await (await waiter).unlock();
      });
    });

    describe("lost answers", () => {
      test("to an acquire: it holds, or nobody does", async () => {
        const { client, wire } = await openOverWire();
        const name = freshName();
        for (let i = 0; i < 5; i += 1) {
          wire.loseNextAnswer();
          const lock = await client.tryLock(name, { ttl: LONG }).catch((error) => {
            expect(error).toMatchObject({ code: "STORE_UNAVAILABLE" });
            return undefined;
          });
          if (lock) {
            expect(await tryLock(open(), name)).toBeUndefined();
            await lock.unlock();
          }
          await expectFree(name);
        }
      });

      test("to a release: it is released all the same", async () => {
        const { client, wire } = await openOverWire();
        const name = freshName();
        const lock = await client.lock(name, { ttl: LONG, wait: 0 });
        wire.loseNextAnswer();
        expect(await lock.unlock()).toBe("released");
        await expectFree(name);
      });

      test("to a renewal: the lock stays held", async () => {
        const { client, wire } = await openOverWire();
        const name = freshName();
        const lock = await client.lock(name, { ttl: 4 * short, wait: 0 });
        wire.loseNextAnswer();
        await pause(6 * short);
        lock.assertHeld();
        expect(await tryLock(open(), name)).toBeUndefined();
        expect(await lock.unlock()).toBe("released");
      });
    });

    describe("giving back", () => {
      test("twice, or at once from two places, gives one answer", async () => {
        const name = freshName();
        const lock = await open().lock(name, { ttl: LONG, wait: 0 });
        expect(await Promise.all([lock.unlock(), lock.unlock()])).toEqual(["released", "released"]);
        const next = await open().lock(name, { ttl: LONG, wait: 0 });
        expect(await lock.unlock()).toBe("released");
        await lock[Symbol.asyncDispose]();
        next.assertHeld();
        expect(await tryLock(open(), name)).toBeUndefined();
      });

      test("aborts the signal, and assertHeld throws from then on", async () => {
        const lock = await open().lock(freshName(), { ttl: LONG, wait: 0 });
        const released = lock.unlock();
        expect(() => lock.assertHeld()).toThrow(LockLostError);
        expect(lock.signal.reason).toMatchObject({ why: "released" });
        await released;
      });

      test("withLock gives back in every case, and its body's error comes out", async () => {
        const client = open();
        const name = freshName();
        const options = { ttl: LONG, wait: 0 };
        expect(await client.withLock(name, options, async ({ fence }) => fence.token > 0n)).toBe(
          true,
        );
        await expectFree(name);
        const fault = new Error("the body's own");
        await expect(client.withLock(name, options, () => Promise.reject(fault))).rejects.toBe(
          fault,
        );
        await expectFree(name);
      });

      test("withLock tells of a lock that was lost under its body", async () => {
        const client = open();
        const name = freshName();
        const body = async (lock: Lock) => {
          await store.erase(name);
          lock.assertHeld();
          return "done";
        };
        await expect(client.withLock(name, { ttl: LONG, wait: 0 }, body)).rejects.toMatchObject({
          code: "LOCK_LOST",
        });
      });

      test("a closed store gives back what it holds and ends its waits", async () => {
        const [ours, theirs] = [open(), open()];
        const [held, awaited] = [freshName(), freshName()];
        const lock = await ours.lock(held, { ttl: LONG, wait: 0 });
        await theirs.lock(awaited, { ttl: LONG, wait: 0 });
        const waiting = ours.lock(awaited, { ttl: LONG, wait: LONG });
        const outcome = expect(waiting).rejects.toMatchObject({ code: "STORE_CLOSED" });
        await pause(20);
        await ours.close();
        await outcome;
        expect(lock.signal.reason).toMatchObject({ why: "closed" });
        await expectFree(held);
        await expect(ours.tryLock(held, { ttl: LONG })).rejects.toMatchObject({
          code: "STORE_CLOSED",
        });
        await ours.close();
      });

      test("a process ends by itself once its store is closed", async () => {
        if (store.url === undefined) {
          expect(open().traits.shared).toBe(false);
          return;
        }
        using script = runScript("once", store.url, freshName());
        expect(await script.line()).toBe("closed");
        expect(await script.ended).toBe(0);
      });
    });

    describe("names", () => {
      const awkward = [
        "a",
        "a/b",
        "ab",
        "A",
        "a ",
        " a",
        "a%",
        "a%2Fb",
        "a%252Fb",
        "a_",
        "a'b",
        'a"b',
        "a\\b",
        "a;--",
        "a\nb",
        "á",
        "a\u0301",
        "🔒",
        "🔒🔒",
        "\ufeffa",
        "a\u200b",
        "..",
        "%",
        "_",
        "x".repeat(512),
        `${"x".repeat(511)}y`,
        "é".repeat(256),
      ];

      test("are compared byte for byte, and never collide", async () => {
        const client = open();
        const locks = new Map<string, Lock>();
        for (const name of awkward) {
          const lock = await tryLock(client, name);
          expect(lock, JSON.stringify(name)).toBeDefined();
          if (lock) locks.set(name, lock);
        }
        const other = open();
        for (const name of awkward) expect(await tryLock(other, name)).toBeUndefined();
        const listed = (await other.list()).map((info) => info.name);
        for (const name of awkward) expect(listed).toContain(name);
        for (const start of ["a", "a%", "a_", "🔒", "x".repeat(512)]) {
          const expected = awkward.filter((name) => name.startsWith(start));
          const found = (await other.list(start)).map((info) => info.name);
          expect(found.sort()).toEqual(expected.sort());
        }
        await locks.get("a")?.unlock();
        expect(await tryLock(other, "a/b")).toBeUndefined();
        expect(await tryLock(other, "a ")).toBeUndefined();
        for (const lock of locks.values()) expect(await lock.unlock()).toBe("released");
      });

      test("and spans that are not right are refused before anything is asked of the store", async () => {
        const { client, wire } = await openOverWire();
        const lock = await client.lock(freshName(), { ttl: LONG, wait: 0, maxHold: LONG });
        wire.cut();
        const bad = [
          [undefined, TypeError],
          [7, TypeError],
          [["a"], TypeError],
          ["", RangeError],
          ["a\0b", RangeError],
          ["\ud800", RangeError],
          ["x".repeat(513), RangeError],
          ["é".repeat(257), RangeError],
        ] as const;
        for (const [name, kind] of bad) {
          await expect(client.lock(name as string, { ttl: LONG, wait: 0 })).rejects.toThrow(kind);
          await expect(client.tryLock(name as string, { ttl: LONG })).rejects.toThrow(kind);
          await expect(client.inspect(name as string)).rejects.toThrow(kind);
        }
        const spans = [
          0,
          -1,
          Number.NaN,
          Number.POSITIVE_INFINITY,
          1e21,
          "5",
          "",
          null,
          undefined,
          {},
        ];
        for (const span of spans as number[]) {
          const refused = expect.objectContaining({
            name: expect.stringMatching(/^(Type|Range)Error$/),
          });
          await expect(client.lock("a", { ttl: span, wait: 0 })).rejects.toEqual(refused);
          await expect(client.tryLock("a", { ttl: span })).rejects.toEqual(refused);
        }
        for (const wait of [-1, Number.NaN, Number.POSITIVE_INFINITY, "5"] as number[]) {
          const refused = expect.objectContaining({
            name: expect.stringMatching(/^(Type|Range)Error$/),
          });
          await expect(client.lock("a", { ttl: LONG, wait })).rejects.toEqual(refused);
        }
        await expect(client.lock("a", { ttl: client.traits.minTtl / 2, wait: 0 })).rejects.toThrow(
          RangeError,
        );
        await expect(client.lockAll([], { ttl: LONG, wait: 0 })).rejects.toThrow(RangeError);
        for (const span of [-1, Number.NaN, Number.POSITIVE_INFINITY, "5"] as number[]) {
          await expect(lock.ensure(span)).rejects.toThrow(/^span /);
          expect(() => lock.assertHeld(span)).toThrow(/^spare /);
        }
        await expect(lock.ensure(LONG)).rejects.toMatchObject({ why: "max-hold" });
        lock.assertHeld();
        wire.mend();
      });
    });

    describe("looking", () => {
      test("shows the holder, its fence and when it expires", async () => {
        const client = open({ label: "the holder" });
        const name = freshName();
        expect(await client.inspect(name)).toMatchObject({ name, holder: undefined, waiters: 0 });
        const lock = await client.lock(name, { ttl: LONG, wait: 0 });
        const info = await open().inspect(name);
        expect(info).toMatchObject({ name, fence: String(lock.fence) });
        expect(info.holder).toMatch(/^the holder/);
        expect(info.expiresIn).toBeGreaterThan(LONG / 2);
        expect(info.expiresIn).toBeLessThanOrEqual(LONG);
        const waiting = client.lock(name, { ttl: LONG, wait: LONG });
        await until(async () => (await client.inspect(name)).waiters === 1);
        await lock.unlock();
        await (await waiting).unlock();
        expect(await client.inspect(name)).toMatchObject({
          holder: undefined,
          expiresIn: undefined,
        });
      });

      test("lists what is held, and not what has expired", async () => {
        const client = open();
        const prefix = `${freshName()}/`;
        const names = ["c", "a", "b"].map((end) => prefix + end);
        for (const name of names) await client.lock(name, { ttl: LONG, wait: 0 });
        await client.lock(`${prefix}short`, { ttl: short, wait: 0, renew: false });
        const other = open();
        const listed = await until(async () => {
          const infos = await other.list(prefix);
          return infos.length === names.length && infos;
        }, short + 2_000);
        expect(listed.map((info) => info.name)).toEqual([...names].sort());
        expect(listed.every((info) => info.holder)).toBe(true);
      });
    });
  });
}
