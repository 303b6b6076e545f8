import { describe, expect, test } from "vitest";
import { LockLostError } from "../../core/lock/errors.ts";
import { compareFence } from "../../core/lock/fence.ts";
import type { Lock, LockInfo } from "../../core/lock/lock.ts";
import { IncidentWriter, readIncidents } from "../../functions/telemetry/incident-records.ts";
import { runScript } from "../support/script.ts";
import { pause, until } from "../support/until.ts";
import { freshName, LONG, type LockSuite, SHORT } from "./lock-suite.ts";

/** Release, names, arguments and inspection. */
export function describeCalls(suite: LockSuite): void {
  const { expectFree, open, openOverWire, tryLock } = suite;

  describe("release", () => {
    test("unlock gives the same answer each time, and to concurrent calls", async () => {
      const name = freshName();
      const lock = await open().lock(name, { ttl: LONG, wait: LONG });
      expect(await Promise.all([lock.unlock(), lock.unlock()])).toEqual(["released", "released"]);
      const next = await open().lock(name, { ttl: LONG, wait: LONG });
      expect(await lock.unlock()).toBe("released");
      await lock[Symbol.asyncDispose]();
      next.assertHeld();
      expect(await tryLock(open(), name)).toBeUndefined();
    });

    test("unlock aborts the signal at once, and assertHeld throws from then on", async () => {
      const lock = await open().lock(freshName(), { ttl: LONG, wait: LONG });
      const released = lock.unlock();
      expect(() => lock.assertHeld()).toThrow(LockLostError);
      expect(lock.signal.reason).toMatchObject({ why: "released" });
      await released;
    });

    test("withLock releases the lock in every case, and rejects with the error of its body", async () => {
      const client = open();
      const name = freshName();
      const options = { ttl: LONG, wait: LONG };
      expect(await client.withLock(name, options, async ({ fence }) => fence.token > 0n)).toBe(
        true,
      );
      await expectFree(name);
      const fault = new Error("of the body");
      await expect(client.withLock(name, options, () => Promise.reject(fault))).rejects.toBe(fault);
      await expectFree(name);
    });

    test("withLock rejects with LOCK_LOST when the lock was lost while its body ran", async () => {
      const client = open();
      const name = freshName();
      const body = async (lock: Lock) => {
        await suite.store.erase(name);
        lock.assertHeld();
        return "done";
      };
      await expect(client.withLock(name, { ttl: LONG, wait: LONG }, body)).rejects.toMatchObject({
        code: "LOCK_LOST",
      });
    });

    test("close releases the locks of its store and ends the waits", async () => {
      const [ours, theirs] = [open(), open()];
      const [held, awaited] = [freshName(), freshName()];
      const lock = await ours.lock(held, { ttl: LONG, wait: LONG });
      await theirs.lock(awaited, { ttl: LONG, wait: LONG });
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

    test("a process exits once its store is closed", async () => {
      if (suite.store.url === undefined) {
        expect(suite.isOpenedByUrl()).toBe(false);
        return;
      }
      using script = runScript("once", suite.store.url, freshName());
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

    test("names are compared byte for byte, and never collide", async () => {
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

    test("invalid names and spans are rejected before any request is sent", async () => {
      const { client, wire } = await openOverWire();
      const lock = await client.lock(freshName(), { ttl: LONG, wait: LONG, maxHold: LONG });
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
      const withHole = Object.assign(new Array<string>(2), { 1: "b" });
      await expect(client.lockAll(withHole, { ttl: LONG, wait: 0 })).rejects.toThrow(
        /^lock name must be a string/,
      );
      const notSignal = { ttl: LONG, wait: 0, signal: 0 as never };
      await expect(client.lock("a", notSignal)).rejects.toThrow(/^signal must be an AbortSignal/);
      for (const deadline of [5_000, "5s", {}, { remaining: () => Number.NaN }] as never[]) {
        const options = { ttl: LONG, wait: 0, deadline };
        await expect(client.lock("a", options)).rejects.toThrow(/^deadline/);
      }
      for (const signal of [5, "x", new AbortController()] as never[]) {
        await expect(client.lock("a", { ttl: LONG, wait: 0, signal })).rejects.toThrow(
          /^signal must be an AbortSignal/,
        );
      }
      for (const span of [-1, Number.NaN, Number.POSITIVE_INFINITY, "5"] as number[]) {
        await expect(lock.ensure(span)).rejects.toThrow(/^span /);
        expect(() => lock.assertHeld(span)).toThrow(/^spare /);
      }
      await expect(lock.ensure(LONG)).rejects.toMatchObject({ why: "max-hold" });
      lock.assertHeld();
      wire.mend();
    });
  });

  describe("calls", () => {
    test("a call without options or a body is rejected with an example of the right call", async () => {
      const client = open();
      const bare = client as unknown as Record<string, (...given: unknown[]) => Promise<unknown>>;
      const lock = '("a", { ttl: 10_000, wait: 5_000 })';
      const cures = [
        ["lock", ["a"], `lock${lock}`],
        ["lock", ["a", async () => {}], `lock${lock}`],
        ["tryLock", ["a"], 'tryLock("a", { ttl: 10_000 })'],
        ["lockAll", [["a"]], 'lockAll(["a"], { ttl: 10_000, wait: 5_000 })'],
        ["withLock", ["a"], 'withLock("a", { ttl: 10_000, wait: 5_000 }, async (lock) => …)'],
        ["withLock", ["a", async () => {}], 'withLock("a", { ttl: 10_000, wait: 5_000 }, async'],
        ["withLock", ["a", { ttl: LONG, wait: 0 }], "withLock needs a body"],
      ] as const;
      for (const [method, given, cure] of cures) {
        const message = expect.stringContaining(cure);
        await expect(bare[method]?.(...given)).rejects.toMatchObject({
          name: "TypeError",
          message,
        });
      }
      await expectFree("a");
    });
  });

  describe("inspection", () => {
    test("inspect shows the holder, its fence and the time until expiry", async () => {
      const client = open({ label: "the holder" });
      const name = freshName();
      expect(await client.inspect(name)).toMatchObject({ name, holder: undefined, waiters: 0 });
      const lock = await client.lock(name, { ttl: LONG, wait: LONG });
      const info = await open().inspect(name);
      expect(info).toMatchObject({ name, fence: String(lock.fence) });
      expect(info.holder).toMatch(/^the holder\/[0-9a-f-]{36}$/);
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

    test("inspect shows the waiters in the store's queue, in order, each since it came", async () => {
      const name = freshName();
      const holder = open();
      const lock = await holder.lock(name, { ttl: LONG, wait: LONG });
      const queued = async () => (await holder.inspect(name)).queue;
      if (!holder.traits.watches) {
        expect((await queued()) ?? []).toEqual([]);
        return;
      }
      const before = Date.now();
      const wait = (pid: number) =>
        open({ label: `web:${pid}` }).lock(name, { ttl: LONG, wait: 6 * LONG });
      const first = wait(71);
      await until(async () => (await queued())?.length === 1);
      const second = wait(72);
      let info: LockInfo | undefined;
      await until(async () => {
        info = await holder.inspect(name);
        return info.queue?.length === 2;
      });
      expect(info?.waiters).toBe(2);
      expect(info?.queue).toMatchObject([
        { id: expect.stringMatching(/^web:71\//), host: "web", pid: 71 },
        { host: "web", pid: 72 },
      ]);
      for (const { since = 0 } of info?.queue ?? []) {
        expect(Math.abs(Number(since) - before)).toBeLessThan(60_000);
      }
      await lock.unlock();
      await (await first).unlock();
      await (await second).unlock();
      await until(async () => (await queued())?.length === 0);
    });

    test("inspect and list show what the holder says of itself", async () => {
      const client = open({ label: "web-1:4711", command: "node worker.js" });
      const name = freshName();
      const before = Date.now();
      const work = { run: "order-7", step: "charge" };
      const lock = await client.lock(name, { ttl: LONG, wait: LONG, work });
      const about = { host: "web-1", pid: 4711, command: "node worker.js", ...work };
      const { about: shown } = await open().inspect(name);
      expect(shown).toMatchObject(about);
      expect(shown?.since?.getTime()).toBeGreaterThanOrEqual(before);
      expect(await open().list(name)).toMatchObject([{ name, about }]);
      await lock.ensure(LONG / 2);
      expect(await lock.unlock()).toBe("released");
      expect((await client.inspect(name)).about).toBeUndefined();
    });

    test("what the holder says of itself is shortened, so that it fits with the longest label", async () => {
      const client = open({ label: `${"h".repeat(100)}:4711`, command: "é".repeat(200) });
      const name = freshName();
      const work = { run: "r".repeat(255), step: "s".repeat(255) };
      const lock = await client.lock(name, { ttl: LONG, wait: LONG, work });
      const { about } = await client.inspect(name);
      expect(about).toMatchObject({ run: expect.stringMatching(/^r+…$/), pid: 4711 });
      await lock.unlock();
      const longest = open({ label: "l".repeat(200) });
      await (await longest.lock(name, { ttl: LONG, wait: LONG, work })).unlock();
    });

    test("release frees the lock of another client, whose fence is given, and says who held it", async () => {
      const [holder, operator, next] = [open({ label: "stuck" }), open(), open()];
      const name = freshName();
      const lock = await holder.lock(name, { ttl: LONG, wait: LONG, renew: false });
      const fence = String(lock.fence);
      const wrong = fence.replace(/\d$/, (digit) => String((Number(digit) + 1) % 10));
      const refusal = { code: "FENCE_INVALID", message: expect.stringMatching(/is held by stuck/) };
      await expect(operator.release(name, { fence: wrong })).rejects.toMatchObject(refusal);
      expect(await tryLock(next, name)).toBeUndefined();
      const waiting = next.lock(name, { ttl: LONG, wait: LONG });
      const was = await operator.release(name, { fence });
      expect(was).toMatchObject({ name, fence, holder: expect.stringMatching(/^stuck/) });
      const later = await waiting;
      expect(compareFence(later.fence, lock.fence)).toBe(1);
      expect(await lock.unlock()).toBe("was-lost");
      await expect(operator.release(name, { fence })).rejects.toMatchObject({
        code: "FENCE_INVALID",
      });
      expect(await later.unlock()).toBe("released");
      await expect(operator.release(name, { fence })).rejects.toThrow(/has no holder/);
      await expect(operator.release(name, { fence: "7" })).rejects.toThrow(TypeError);
    });

    test("the rest of a set is free after its release although an operator has released one of its locks", async () => {
      const [holder, operator] = [open(), open()];
      const [taken, kept] = [freshName(), freshName()];
      const set = await holder.lockAll([taken, kept], { ttl: LONG, wait: LONG });
      await operator.release(taken, { fence: String(set.fences.get(taken)) });
      expect(await set.unlock()).toBe("was-lost");
      expect(await tryLock(operator, kept)).toBeDefined();
    });

    test("the newest 20 incidents of all clients are read from the store, also after the end of a client", async () => {
      const [writer, other, reader] = [open({ label: "web:7/main" }), open(), open()];
      const leave = async (client: typeof writer, lock: string) => {
        const incidents = new IncidentWriter(() => client);
        await incidents.leave({ kind: "lost", lock, fence: "0.1", why: "a test" });
        // Times have milliseconds.
        await pause(3);
      };
      for (let i = 0; i < 20; i += 1) await leave(other, `old-${i}`);
      const name = freshName();
      await leave(writer, name);
      await leave(writer, "x".repeat(255));
      await writer.close();
      const incidents = await readIncidents(reader);
      expect(incidents.length).toBe(20);
      expect(incidents[1]).toEqual({
        at: expect.any(Date),
        process: "web:7/main",
        ...{ kind: "lost", lock: name, fence: "0.1", why: "a test" },
      });
      expect(incidents[0]?.lock).toMatch(/^x{40,}…$/);
      const locks = incidents.map(({ lock }) => lock);
      expect(locks).toContain("old-19");
      expect(locks).not.toContain("old-0");
      expect((await reader.list()).filter((info) => info.name.includes("incident"))).toEqual([]);
      // Nothing is thrown after the end of the client.
      await leave(writer, name);
    });

    test("list shows held locks without expired ones", async () => {
      const client = open();
      const prefix = `${freshName()}/`;
      const names = ["c", "a", "b"].map((end) => prefix + end);
      for (const name of names) await client.lock(name, { ttl: LONG, wait: LONG });
      await client.lock(`${prefix}short`, { ttl: SHORT, wait: LONG, renew: false });
      const other = open();
      const listed = await until(async () => {
        const infos = await other.list(prefix);
        return infos.length === names.length && infos;
      });
      expect(listed.map((info) => info.name)).toEqual([...names].sort());
      expect(listed.every((info) => info.holder)).toBe(true);
    });
  });
}
