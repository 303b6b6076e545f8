import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { z } from "zod";
import type { EntityId, EntityMessage, EntityRecords } from "../../core/journal/entities.ts";
import type { Journal } from "../../core/journal/journal.ts";
import { compareFence } from "../../core/lock/fence.ts";
import type { Runtime } from "../../core/steps/contract.ts";
import { entity } from "../../core/steps/entity/entity.ts";
import { createRuntime } from "../../core/steps/runtime.ts";
import { account, calls, hooks } from "../support/account.ts";
import type { JournalUnderTest } from "../support/journal-under-test.ts";
import { HASH } from "../support/runs.ts";
import { pause, until, within } from "../support/until.ts";

let keys = 0;

/** Returns the key of a new account. */
export function newKey(): string {
  keys += 1;
  return `key-${process.pid}-${keys}`;
}

/** Tests each property of entities and of their records. */
export function describeEntities(name: string, make: () => Promise<JournalUnderTest>): void {
  describe(`entities on ${name}`, () => {
    let underTest: JournalUnderTest;
    let journal: Journal;
    let close: () => Promise<void>;
    let runtime: Runtime;

    beforeAll(async () => {
      underTest = await make();
      ({ journal, close } = underTest.open());
      runtime = createRuntime({ journal, entities: [account] });
    });

    afterAll(async () => {
      await close();
      await underTest.close();
    });

    beforeEach(() => {
      calls.length = 0;
      hooks.deposit = async () => {};
    });

    describeCalls(
      () => runtime,
      () => journal,
    );
    describeTurns(() => ({ journal, runtime }));
    describeRecords(() => journal.entities);
  });
}

function describeCalls(get: () => Runtime, getJournal: () => Journal): void {
  describe("a call", () => {
    test("changes the state, and resolves to the handler's result", async () => {
      const mine = get().entity(account, newKey());
      expect(await mine.state()).toEqual({ balance: 0, currency: "EUR" });
      expect(await mine.call("deposit", 5, { operationId: "1" })).toBe(5);
      expect(await mine.call("withdraw", 2, { operationId: "2" })).toBe(3);
      expect(await mine.state()).toEqual({ balance: 3, currency: "EUR" });
      expect(await get().entity(account, newKey()).state()).toMatchObject({ balance: 0 });
    });

    test("with a known operation id resolves to the first result without the handler", async () => {
      const mine = get().entity(account, newKey());
      await mine.call("deposit", 5, { operationId: "once" });
      await mine.call("deposit", 1, { operationId: "other" });
      expect(await mine.call("deposit", 5, { operationId: "once" })).toBe(5);
      expect(await mine.state()).toMatchObject({ balance: 6 });
      expect(calls.map(({ operationId }) => operationId)).toEqual(["once", "other"]);
    });

    test("with a known operation id and another input or handler is refused", async () => {
      const mine = get().entity(account, newKey());
      await mine.call("deposit", 5, { operationId: "once" });
      const conflict = { code: "INPUT_CONFLICT" };
      await expect(mine.call("deposit", 6, { operationId: "once" })).rejects.toMatchObject(
        conflict,
      );
      await expect(mine.call("withdraw", 5, { operationId: "once" })).rejects.toMatchObject(
        conflict,
      );
      await expect(mine.tell("deposit", 6, { operationId: "once" })).rejects.toMatchObject(
        conflict,
      );
      expect(await mine.state()).toMatchObject({ balance: 5 });
    });

    test("that is refused for its input leaves the key free", async () => {
      const mine = get().entity(account, newKey());
      await mine.tell("deposit", 5, { operationId: "told" });
      await expect(mine.call("deposit", 6, { operationId: "told" })).rejects.toMatchObject({
        code: "INPUT_CONFLICT",
      });
      expect(await within(10_000, mine.call("deposit", 1, { operationId: "next" }))).toBe(6);
    });

    test("with the same operation id on another key is another operation", async () => {
      const [mine, yours] = [newKey(), newKey()].map((key) => get().entity(account, key));
      expect(await mine?.call("deposit", 1, { operationId: "1" })).toBe(1);
      expect(await yours?.call("deposit", 2, { operationId: "1" })).toBe(2);
    });

    test("that fails for good leaves the state, and fails the same way again", async () => {
      const mine = get().entity(account, newKey());
      const withdraw = () => mine.call("withdraw", 9, { operationId: "1" });
      const failure = { code: "TOO_POOR", message: "0 is too little", data: { amount: 9 } };
      await expect(withdraw()).rejects.toMatchObject(failure);
      await mine.call("deposit", 20, { operationId: "2" });
      await expect(withdraw()).rejects.toMatchObject(failure);
      expect(await mine.state()).toMatchObject({ balance: 20 });
    });

    test("repeats a handler that fails, with the same idempotency key, up to its attempts", async () => {
      const key = newKey();
      const mine = get().entity(account, key);
      expect(await mine.call("flaky", { failures: 2 }, { operationId: "1" })).toEqual({
        attempt: 3,
        idempotencyKey: `entity/account/${key}/1`,
      });
      await expect(mine.call("flaky", { failures: 3 }, { operationId: "2" })).rejects.toMatchObject(
        {
          message: "attempt 3 failed",
        },
      );
    });

    test("rejects at its caller's signal, although the handler goes on", async () => {
      const gate = Promise.withResolvers<void>();
      hooks.deposit = () => gate.promise;
      const mine = get().entity(account, newKey());
      const caller = new AbortController();
      const { signal } = caller;
      const calling = mine.call("deposit", 5, { operationId: "1", signal });
      await until(() => calls.length === 1);
      caller.abort(new Error("enough"));
      await expect(calling).rejects.toThrow("enough");
      gate.resolve();
      await until(async () => (await mine.state()).balance === 5);
    });

    test("with bad input is refused before the handler", async () => {
      const mine = get().entity(account, newKey());
      const code = "INVALID";
      await expect(mine.call("deposit", -1, { operationId: "1" })).rejects.toMatchObject({ code });
      await expect(mine.call("deposit", 1, { operationId: "" })).rejects.toThrow("operation id");
      await expect(mine.call("toString" as "deposit", 1, { operationId: "1" })).rejects.toThrow(
        'the entity account has no handler "toString"',
      );
      expect(() => get().entity(account, "")).toThrow("key must not be empty");
      expect(calls).toEqual([]);
    });

    test("that is told is handled by deliver, once, in the order of arrival", async () => {
      const mine = get().entity(account, newKey());
      for (const operationId of ["a", "b", "a", "c"]) {
        await mine.tell("deposit", 1, { operationId });
      }
      expect(await mine.state()).toMatchObject({ balance: 0 });
      expect(await get().deliver()).toBe(3);
      expect(await mine.state()).toMatchObject({ balance: 3 });
      expect(calls.map(({ operationId }) => operationId)).toEqual(["a", "b", "c"]);
    });

    test("that is told is handled although longer waiting ones of many keys wait for newer code", async () => {
      const name = newKey();
      const state = z.number();
      const make = (handlers: readonly string[]) =>
        entity({ name, state, initial: 0 }, (on) =>
          Object.fromEntries(
            handlers.map((handler) => [handler, on(z.number(), async (_, n) => ({ state: n }))]),
          ),
        );
      const [newer, older] = [make(["set", "replace"]), make(["set"])];
      const sender = createRuntime({ journal: getJournal(), entities: [newer] });
      for (let i = 0; i < 40; i += 1) {
        await sender.entity(newer, `stuck ${i}`).tell("replace", 1, { operationId: `${i}` });
      }
      await sender.entity(newer, "last").tell("set", 5, { operationId: "last" });
      const receiver = createRuntime({ journal: getJournal(), entities: [older] });
      expect(await receiver.deliver()).toBe(1);
      expect(await receiver.entity(older, "last").state()).toBe(5);
      expect(await sender.deliver()).toBe(40);
    });

    test("handles the operations that were told before it", async () => {
      const mine = get().entity(account, newKey());
      await mine.tell("deposit", 10, { operationId: "told" });
      expect(await mine.call("withdraw", 4, { operationId: "called" })).toBe(6);
    });
  });
}

function describeTurns(get: () => { readonly journal: Journal; readonly runtime: Runtime }): void {
  describe("a turn", () => {
    test("belongs to one caller at a time: no update of 60 concurrent ones is lost", async () => {
      const { journal } = get();
      let active = 0;
      hooks.deposit = async () => {
        active += 1;
        expect(active).toBe(1);
        await new Promise((resolve) => setImmediate(resolve));
        active -= 1;
      };
      const key = newKey();
      const accounts = Array.from({ length: 3 }, () =>
        createRuntime({ journal }).entity(account, key),
      );
      const balances = await Promise.all(
        Array.from({ length: 60 }, (_, i) =>
          accounts[i % 3]?.call("deposit", 1, { operationId: `op-${i}` }),
        ),
      );
      expect(balances.toSorted((a = 0, b = 0) => a - b)).toEqual(
        Array.from({ length: 60 }, (_, i) => i + 1),
      );
    });

    test("has a greater fence than all earlier ones", async () => {
      const mine = get().runtime.entity(account, newKey());
      for (const operationId of ["1", "2", "3"]) await mine.call("deposit", 1, { operationId });
      const [first, second, third] = calls.map(({ fence }) => fence);
      if (!first || !second || !third) throw new Error("too few calls");
      expect([compareFence(first, second), compareFence(second, third)]).toEqual([-1, -1]);
    });

    test("that is lost by a frozen handler ends without its change, and another process answers", async () => {
      const { journal, runtime } = get();
      // Its renewals do not arrive, as in a frozen process.
      const renew = () => new Promise<never>(() => {});
      const frozen = createRuntime({
        journal: { ...journal, entities: { ...journal.entities, renew } },
        lease: 200,
      });
      const key = newKey();
      const { promise: thawed, resolve: thaw } = Promise.withResolvers<void>();
      const aborted = Promise.withResolvers<unknown>();
      hooks.deposit = async (_, signal) => {
        hooks.deposit = async () => {};
        signal.addEventListener("abort", () => aborted.resolve(signal.reason));
        await thawed;
      };
      const first = frozen.entity(account, key).call("deposit", 5, { operationId: "first" });
      await until(() => calls.length === 1);
      const second = runtime.entity(account, key).call("deposit", 1, { operationId: "second" });
      expect(await second).toBe(6);
      thaw();
      expect(await first).toBe(5);
      expect(await aborted.promise).toMatchObject({ code: "LOCK_LOST" });
      expect(await runtime.entity(account, key).state()).toMatchObject({ balance: 6 });
      expect(calls.map(({ operationId }) => operationId)).toEqual(["first", "first", "second"]);
    });

    test("ends at the caller's signal, and the operation is handled later", async () => {
      const { runtime } = get();
      const key = newKey();
      const mine = runtime.entity(account, key);
      const controller = new AbortController();
      const holding = Promise.withResolvers<void>();
      hooks.deposit = () => holding.promise;
      const held = mine.call("deposit", 1, { operationId: "held" });
      await until(() => calls.length === 1);
      const options = { operationId: "given up", signal: controller.signal };
      await mine.tell("deposit", 1, { operationId: "given up" });
      const givenUp = mine.call("deposit", 1, options);
      controller.abort(new Error("enough"));
      await expect(givenUp).rejects.toThrow("enough");
      holding.resolve();
      await held;
      await until(async () => (await mine.state()).balance === 2);
    });
  });
}

function message(operationId: string, more: Partial<EntityMessage> = {}): EntityMessage {
  return { operationId, handler: "deposit", input: "1", inputHash: HASH, ...more };
}

function describeRecords(get: () => EntityRecords): void {
  describe("a record of an entity", () => {
    const ok = { outcome: "ok", value: '"done"' } as const;
    const idOf = () => ({ entity: "thing", key: newKey() });
    const commitOf = (...messages: readonly EntityMessage[]) => ({
      state: '"new"',
      answers: messages.map((one) => ({ ...ok, message: one })),
      writes: [],
      keep: 60_000,
    });

    test("is claimed by one visitor, and a commit without further messages frees it", async () => {
      const id = idOf();
      const records = get();
      expect((await records.visit(id, { ttl: 60_000 })).claimed).toBeUndefined();
      const { claimed } = await records.visit(id, { message: message("1"), ttl: 60_000 });
      if (!claimed) throw new Error("not claimed");
      expect(claimed).toMatchObject({ id, state: undefined, messages: [message("1")] });
      const other = await records.visit(id, { message: message("2"), ttl: 60_000 });
      expect(other).toEqual({ inputHash: HASH, answer: undefined, claimed: undefined });
      expect((await records.read(id)).freeIn).toBeGreaterThan(0);
      expect(await records.commit(claimed, commitOf(message("1")))).toEqual([message("2")]);
      expect(await records.renew(claimed, 60_000)).toBe(true);
      expect(await records.commit(claimed, commitOf(message("2")))).toEqual([]);
      expect(await records.renew(claimed, 60_000)).toBe(false);
      expect(await records.read(id, "1")).toEqual({ state: '"new"', answer: ok, freeIn: 0 });
      expect(await records.visit(id, { message: message("1"), ttl: 60_000 })).toEqual({
        ...{ inputHash: HASH, answer: ok, claimed: undefined },
      });
    });

    test("refuses the commit of an earlier claim, whole", async () => {
      const id = idOf();
      const records = get();
      const late = (await records.visit(id, { message: message("1"), ttl: 20 })).claimed;
      if (!late) throw new Error("not claimed");
      const next = await until(async () => (await records.visit(id, { ttl: 60_000 })).claimed);
      expect(compareFence(late.fence, next.fence)).toBe(-1);
      const refused = { code: "FENCED_OUT" };
      await expect(records.commit(late, commitOf(message("1")))).rejects.toMatchObject(refused);
      expect(await records.read(id, "1")).toMatchObject({ state: undefined, answer: undefined });
      expect(await records.renew(late, 60_000)).toBe(false);
      await records.release(late);
      expect((await records.read(id)).freeIn).toBeGreaterThan(0);
      await records.release(next);
      expect(await records.read(id)).toMatchObject({ freeIn: 0 });
      expect(await records.waiting(["thing"], 1_000)).toContainEqual(id);
      expect(await records.waiting(["other"], 1_000)).toEqual([]);
    });

    test("waits behind those whose oldest message has waited longer", async () => {
      const entity = newKey();
      const records = get();
      const [first, second] = ["a", "b"].map((key) => ({ entity, key })) as [EntityId, EntityId];
      const waiting = () => records.waiting([entity, "other"], 10);
      for (const id of [first, second, first]) {
        await records.visit(id, { message: message(newKey()) });
        await pause(2);
      }
      expect(await waiting()).toEqual([first, second]);
      expect(await records.waiting([entity], 1)).toEqual([first]);
      const { claimed } = await records.visit(first, { ttl: 60_000 });
      if (!claimed) throw new Error("not claimed");
      expect(await waiting()).toEqual([second]);
      const [oldest, ...others] = claimed.messages as [EntityMessage, ...EntityMessage[]];
      await records.commit(claimed, commitOf(oldest));
      await records.release(claimed);
      expect(await waiting()).toEqual([second, first]);
      const again = (await records.visit(first, { ttl: 60_000 })).claimed;
      if (!again) throw new Error("not claimed");
      await records.commit(again, commitOf(...others));
      expect(await waiting()).toEqual([second]);
      // An operation that is known does not let the entity wait.
      await records.visit(first, { message: oldest });
      expect(await waiting()).toEqual([second]);
    });

    test("is purged of answers after their keep, and keeps its state", async () => {
      const id = idOf();
      const records = get();
      const { claimed } = await records.visit(id, { message: message("1"), ttl: 60_000 });
      if (!claimed) throw new Error("not claimed");
      const kept = idOf();
      const other = await records.visit(kept, { message: message("1"), ttl: 60_000 });
      if (!other.claimed) throw new Error("not claimed");
      await records.commit(other.claimed, { ...commitOf(message("1")), keep: 60_000 });
      await records.commit(claimed, { ...commitOf(message("1")), keep: 0 });
      expect(await until(() => records.purge(10))).toBeGreaterThan(0);
      await records.purge(10);
      expect(await records.read(id, "1")).toMatchObject({ state: '"new"', answer: undefined });
      expect(await records.read(kept, "1")).toMatchObject({ answer: { outcome: "ok" } });
    });
  });
}
