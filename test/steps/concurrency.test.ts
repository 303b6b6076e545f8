import { setTimeout as sleep } from "node:timers/promises";
import { describe, expect, test } from "vitest";
import { z } from "zod";
import { type Sql, sql } from "../../core/database/sql.ts";
import type { Journal } from "../../core/journal/journal.ts";
import { UnknownOutcomeError } from "../../core/lock/errors.ts";
import type { LockStore } from "../../core/lock/lock.ts";
import type { RuntimeOptions } from "../../core/steps/contract.ts";
import { createRuntime, type Runtime, TerminalError } from "../../core/steps/index.ts";
import { injectFaults } from "../../core/steps/testing.ts";
import { memoryJournal } from "../../core/stores/memory/journal.ts";
import { memoryLocks } from "../../core/stores/memory/locks.ts";
import { sqlJournal } from "../../core/stores/sql/journal/index.ts";
import { sqlLocks } from "../../core/stores/sql/locks.ts";
import { migrate } from "../../core/stores/sql/migrate.ts";
import { sqliteDatabase } from "../../core/stores/sqlite/database.ts";
import { flow, resume, untilResumed } from "../support/flow.ts";
import { until, within } from "../support/until.ts";

const input = { n: 1 };

/** Makes two runtimes on one journal, as two processes have. */
function two(journal: Journal, more: Partial<RuntimeOptions> = {}): readonly [Runtime, Runtime] {
  const make = () => createRuntime({ journal, inlineWait: 5, ...more });
  return [make(), make()];
}

/** Returns the same locks with a delay before each unlock. */
function slowToUnlock(locks: LockStore, millis: number): LockStore {
  return injectFaults(locks, (point) => (point === "unlock:before" ? sleep(millis) : undefined));
}

describe.concurrent("concurrent branches", () => {
  test("answers of one millisecond are replayed in the order in which they came", async () => {
    await using database = sqliteDatabase(":memory:");
    await migrate(database);
    const orders: number[][] = [];
    const wf = flow(async (ctx) => {
      const order: number[] = [];
      orders.push(order);
      await ctx.random();
      const branch = async (_: unknown, number: number) => {
        await ctx.random();
        order.push(number);
      };
      await Promise.all(Array.from({ length: 20 }, branch));
      await untilResumed(ctx);
    });
    const journal = sqlJournal(database);
    await createRuntime({ journal, inlineWait: 0 }).execute(wf, input, { id: "r" });
    await resume(createRuntime({ journal }), "r");
    await createRuntime({ journal }).run(wf, input, { id: "r" });
    expect(orders).toEqual([orders[0], orders[0]]);
  });

  test("a branch that goes on after the failure of another one starts no further step", async () => {
    const journal = memoryJournal();
    const [rt] = two(journal);
    const done: string[] = [];
    const failed = Promise.withResolvers<void>();
    const wf = flow(async (ctx) => {
      const other = async () => {
        await ctx.step("b", async () => {});
        await failed.promise;
        await sleep(20);
        await ctx.step("c", async () => done.push("c"));
      };
      const first = ctx.step(
        "a",
        async () => 1,
        async () => {
          await sleep(60);
          done.push("undo a");
        },
      );
      await Promise.all([first, other(), fails(ctx)]);
    });
    const fails = (ctx: Parameters<Parameters<typeof flow>[0]>[0]) =>
      ctx
        .step("no", { effect: "none" }, async () => {
          throw new TerminalError("NO");
        })
        .finally(failed.resolve);
    expect(await rt.execute(wf, input)).toMatchObject({ status: "failed", compensated: "yes" });
    expect(done).toEqual(["undo a"]);
  });

  test("a branch whose record was being written at the failure of another one starts no further step", async () => {
    const done: string[] = [];
    const [rt] = two(
      injectFaults(memoryJournal(), (point) => (point === "append:after" ? sleep(5) : undefined)),
    );
    const wf = flow(async (ctx) => {
      const other = async () => {
        for (const name of ["b", "c", "d", "e"]) {
          await ctx.step(
            name,
            async () => done.push(name),
            async () => done.push(`undo ${name}`),
          );
        }
      };
      const no = async () => {
        await sleep(8);
        throw new TerminalError("NO");
      };
      await Promise.all([other(), no()]);
    });
    expect(await rt.execute(wf, input)).toMatchObject({ status: "failed", compensated: "yes" });
    const forward = done.filter((what) => !what.startsWith("undo"));
    expect(done).toEqual([...forward, ...forward.toReversed().map((name) => `undo ${name}`)]);
  });

  test("a race replays with the same winner, however short it was", async () => {
    const [ours, theirs] = two(memoryJournal());
    const winners: string[] = [];
    const wf = flow(async (ctx) => {
      const detour = async () => {
        await ctx.step("a", async () => sleep(2));
        return "a";
      };
      const indirect = detour().then((w) => w);
      const direct = ctx.step("b", async () => sleep(15)).then(() => "b");
      winners.push(await Promise.race([indirect.then((w) => w), direct]));
      await direct;
      await untilResumed(ctx);
    });
    const runId = "r";
    await ours.execute(wf, input, { id: runId });
    await resume(theirs, runId);
    await theirs.run(wf, input, { id: runId });
    expect(winners).toEqual(["a", "a"]);
  });

  test("a race replays with the same winner when both branches ended at the same time", async () => {
    const [ours, theirs] = two(memoryJournal());
    const winners: string[] = [];
    const wf = flow(async (ctx) => {
      const detour = async () => {
        await ctx.step("a", async () => {});
        return "a";
      };
      const direct = ctx.step("b", async () => {}).then(() => "b");
      winners.push(
        await Promise.race([
          detour()
            .then((w) => w)
            .then((w) => w),
          direct,
        ]),
      );
      await direct;
      await untilResumed(ctx);
    });
    await ours.execute(wf, input, { id: "r" });
    await resume(theirs, "r");
    await theirs.run(wf, input, { id: "r" });
    expect(winners).toHaveLength(2);
    expect(winners[1]).toBe(winners[0]);
  });

  test("a race replays with the same winner, however many promises follow an answer", async () => {
    const [ours, theirs] = two(memoryJournal());
    const winners: string[] = [];
    const wf = flow(async (ctx) => {
      const detour = async () => {
        await ctx.step("a", async () => {});
        for (let i = 0; i < 5_000; i += 1) await undefined;
        return "a";
      };
      const indirect = detour();
      const direct = ctx.step("b", async () => {}).then(() => "b");
      winners.push(await Promise.race([indirect, direct]));
      await direct;
      await untilResumed(ctx);
    });
    await ours.execute(wf, input, { id: "r" });
    await resume(theirs, "r");
    await theirs.run(wf, input, { id: "r" });
    expect(winners).toEqual(["a", "a"]);
  });

  test("branches get their answers in the order of the records when a lock is released late", async () => {
    const locks = slowToUnlock(memoryLocks(), 30);
    const [ours, theirs] = two(memoryJournal(), { locks });
    const keys: string[][] = [];
    const wf = flow(async (ctx) => {
      const seen: string[] = [];
      const branch = async (name: string, lock: object, millis: number) => {
        await ctx.step(name, lock, () => sleep(millis));
        seen.push(name);
      };
      await Promise.all([branch("a", { lock: "x" }, 1), branch("b", {}, 10)]);
      keys.push(seen);
      await untilResumed(ctx);
    });
    await ours.execute(wf, input, { id: "r" });
    await resume(theirs, "r");
    await theirs.run(wf, input, { id: "r" });
    expect(keys).toHaveLength(2);
    expect(keys[1]).toEqual(keys[0]);
  });

  test("branches get their answers in the order of the records when the database answers late", async () => {
    const database = sqliteDatabase(":memory:");
    await migrate(database);
    const written = { a: Promise.withResolvers<void>(), b: Promise.withResolvers<void>() };
    const slow = new Proxy(database, {
      get(target, name) {
        const value = Reflect.get(target, name, target);
        if (name !== "batch") return typeof value === "function" ? value.bind(target) : value;
        return async (statements: readonly Sql[], signal?: AbortSignal) => {
          const results = await target.batch(statements, signal);
          const isOf = (step: string) => statements[0]?.values.includes(step);
          if (isOf("b")) written.b.resolve();
          if (isOf("a")) {
            written.a.resolve();
            await written.b.promise;
          }
          return results;
        };
      },
    });
    const [ours, theirs] = two(sqlJournal(slow));
    const orders: string[][] = [];
    const wf = flow(async (ctx) => {
      const order: string[] = [];
      const branch = async (name: string, work: () => Promise<void>) => {
        await ctx.step(name, work);
        order.push(name);
      };
      await Promise.all([branch("a", async () => {}), branch("b", () => written.a.promise)]);
      orders.push(order);
      await untilResumed(ctx);
    });
    await ours.execute(wf, input, { id: "r" });
    await resume(theirs, "r");
    await theirs.run(wf, input, { id: "r" });
    expect(orders).toEqual([
      ["a", "b"],
      ["a", "b"],
    ]);
    await database.close();
  });

  test("a transaction that was committing at the failure of another branch is undone", async () => {
    const database = sqliteDatabase(":memory:");
    await migrate(database);
    await database.batch([sql`CREATE TABLE effect (name TEXT)`]);
    const gate = Promise.withResolvers<void>();
    const committed = Promise.withResolvers<void>();
    let commits = 0;
    const lossy = injectFaults(database, async (point) => {
      if (point !== "tx.commit:after" || ++commits > 1) return;
      committed.resolve();
      await gate.promise;
      throw new UnknownOutcomeError("sqlite:", "it was committed");
    });
    const locks = sqlLocks(database);
    const rt = createRuntime({ journal: sqlJournal(lossy), locks, inlineWait: 5 });
    const wf = flow(async (ctx) => {
      const reserve = ctx.step.tx(
        "reserve",
        { lock: "sku/1" },
        async ({ tx, signal }) => {
          signal.addEventListener("abort", () => gate.resolve());
          await tx.batch([sql`INSERT INTO effect (name) VALUES ('reserved')`]);
        },
        async (_, { tx }) => tx.batch([sql`DELETE FROM effect`]),
      );
      const soldOut = committed.promise.then(() => {
        throw new TerminalError("SOLD_OUT");
      });
      await Promise.all([reserve, soldOut]);
    });
    const outcome = await within(60_000, rt.run(wf, input, { id: "r" }));
    expect(outcome).toMatchObject({ status: "failed", compensated: "yes" });
    expect(await database.read(sql`SELECT name FROM effect`)).toEqual([]);
    await locks.close();
    await database.close();
  });

  test("branches that wait for the same signal name get one signal each", async () => {
    const [rt] = two(memoryJournal());
    const wf = flow(async (ctx) =>
      Promise.all([ctx.waitFor("go", z.string()), ctx.waitFor("go", z.string())]),
    );
    await rt.start(wf, input, { id: "r" });
    for (const one of ["a", "b"]) await rt.signal("r", "go", one, { dedupeId: one });
    expect(await rt.execute(wf, input, { id: "r" })).toMatchObject({ output: ["a", "b"] });
  });

  test("a branch that awaits a hash and a timer reaches its next step before the run is parked", async () => {
    const [rt] = two(memoryJournal());
    const sent: string[] = [];
    const wf = flow(async (ctx) => {
      const ask = async () => {
        const hash = await crypto.subtle.digest("SHA-256", new Uint8Array(1_000));
        await sleep(1);
        await ctx.step("ask", async () => sent.push(String(hash.byteLength)));
      };
      await Promise.all([ctx.waitFor("answer", z.string()), ask()]);
    });
    const outcome = await rt.execute(wf, input);
    expect(outcome).toMatchObject({ status: "suspended", reason: "signal" });
    expect(sent).toEqual(["32"]);
  });

  test("a run is parked although a call of another branch has just been refused", async () => {
    const [rt] = two(memoryJournal());
    const wf = flow(async (ctx) => {
      const refused = async () => {
        await ctx.step("a", async () => {});
        const keyOf = () => {
          throw new Error("it has no key");
        };
        await ctx.step.map("b", [1], { keyOf }, async () => {});
      };
      await Promise.allSettled([ctx.waitFor("answer", z.string()), refused()]);
    });
    const outcome = await within(60_000, rt.execute(wf, input));
    expect(outcome).toMatchObject({ status: "suspended", reason: "signal" });
  });

  test("a step may fail before the code awaits it, without harm to the process", async () => {
    const [ours, theirs] = two(memoryJournal());
    const wf = flow(async (ctx) => {
      const failing = ctx.step("failing", { retry: false }, async () => {
        throw new Error("no");
      });
      await untilResumed(ctx);
      return failing.catch(() => "caught");
    });
    expect(await ours.execute(wf, input, { id: "r" })).toMatchObject({ status: "suspended" });
    await resume(theirs, "r");
    expect(await theirs.run(wf, input, { id: "r" })).toMatchObject({ output: "caught" });
  });

  test("a branch that awaits a slow timer is no change of the workflow", async () => {
    const [ours, theirs] = two(memoryJournal());
    const wf = flow(async (ctx) => {
      const slow = async () => {
        await ctx.step("a", async () => {});
        await sleep(200);
        return ctx.step("b", async () => "b");
      };
      const late = async () => {
        await ctx.step("c", () => sleep(300));
        return "c";
      };
      const both = await Promise.all([slow(), late()]);
      await untilResumed(ctx);
      return both;
    });
    await ours.execute(wf, input, { id: "r" });
    await resume(theirs, "r");
    expect(await theirs.run(wf, input, { id: "r" })).toMatchObject({ output: ["b", "c"] });
  });

  test("a branch that never ends does not delay a stopped execution", async () => {
    const [rt] = two(memoryJournal());
    const cut = new AbortController();
    let begun = false;
    const wf = flow(async (ctx) => {
      await ctx.step("a", async () => {});
      begun = true;
      await new Promise(() => {});
    });
    const executing = rt.execute(wf, input, { signal: cut.signal });
    await until(() => begun);
    cut.abort();
    expect(await within(60_000, executing)).toMatchObject({ status: "suspended" });
  });
});
