import { setTimeout as sleep } from "node:timers/promises";
import { describe, expect, test } from "vitest";
import { z } from "zod";
import { type Sql, sql } from "../../core/database/sql.ts";
import type { Journal } from "../../core/journal/journal.ts";
import { memoryJournal } from "../../core/journal/memory.ts";
import { sqlJournal } from "../../core/journal/sql.ts";
import { UnknownOutcomeError } from "../../core/lock/errors.ts";
import type { LockStore } from "../../core/lock/lock.ts";
import {
  createRuntime,
  type Runtime,
  type RuntimeOptions,
  TerminalError,
} from "../../core/steps/index.ts";
import { pointed } from "../../core/steps/testing.ts";
import { memoryStore } from "../../core/stores/memory/index.ts";
import { openSqlite, sqliteStore } from "../../core/stores/sqlite/index.ts";
import { migrate } from "../../infra/migrate.ts";
import { flow } from "../conformance/steps.ts";
import { until, within } from "../support/until.ts";

const input = { n: 1 };

/** Two processes, as far as the journal can tell. */
function two(journal: Journal, more: Partial<RuntimeOptions> = {}): readonly [Runtime, Runtime] {
  const make = () => createRuntime({ journal, inlineWait: 5, ...more });
  return [make(), make()];
}

/** The locks, each of which is given back late. */
function slowToUnlock(locks: LockStore, millis: number): LockStore {
  return pointed(locks, (point) => (point === "unlock:before" ? sleep(millis) : undefined));
}

describe.concurrent("branches of a workflow", () => {
  test("that go on after another has failed begin nothing more", async () => {
    const journal = memoryJournal();
    const [rt] = two(journal);
    const done: string[] = [];
    const wf = flow(async (ctx) => {
      const other = async () => {
        await ctx.step("b", async () => {});
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
    const fails = async (ctx: Parameters<Parameters<typeof flow>[0]>[0]) => {
      await sleep(10);
      await ctx.step("no", async () => {
        throw new TerminalError("NO");
      });
    };
    expect(await rt.drive(wf, input)).toMatchObject({ status: "failed", compensated: true });
    expect(done).toEqual(["undo a"]);
  });

  test("whose record was under way when another failed begin nothing more", async () => {
    const done: string[] = [];
    const [rt] = two(
      pointed(memoryJournal(), (point) => (point === "append:after" ? sleep(5) : undefined)),
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
    expect(await rt.drive(wf, input)).toMatchObject({ status: "failed", compensated: true });
    const forward = done.filter((what) => !what.startsWith("undo"));
    expect(done).toEqual([...forward, ...forward.toReversed().map((name) => `undo ${name}`)]);
  });

  test("race the same way again, however short the race was", async () => {
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
      await ctx.sleep("nap", 100);
    });
    const runId = "r";
    await ours.drive(wf, input, { id: runId });
    await theirs.run(wf, input, { id: runId });
    expect(winners).toEqual(["a", "a"]);
  });

  test("race the same way again where both came to their ends at once", async () => {
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
      await ctx.sleep("nap", 100);
    });
    await ours.drive(wf, input, { id: "r" });
    await theirs.run(wf, input, { id: "r" });
    expect(winners).toHaveLength(2);
    expect(winners[1]).toBe(winners[0]);
  });

  test("have their answers in the order of their records, however late a lock is given back", async () => {
    const locks = slowToUnlock(memoryStore(), 30);
    const [ours, theirs] = two(memoryJournal(), { locks });
    const keys: string[][] = [];
    const wf = flow(async (ctx) => {
      const seen: string[] = [];
      const branch = async (name: string, lock: object, millis: number) => {
        await ctx.step(name, lock, () => sleep(millis));
        seen.push(name, await ctx.step("next", async ({ key }) => key));
      };
      await Promise.all([branch("a", { lock: "x" }, 1), branch("b", {}, 10)]);
      keys.push(seen);
      await ctx.sleep("nap", 100);
    });
    await ours.drive(wf, input, { id: "r" });
    await theirs.run(wf, input, { id: "r" });
    expect(keys).toHaveLength(2);
    expect(keys[1]).toEqual(keys[0]);
  });

  test("have their answers in the order of their records, however late a database answers", async () => {
    const database = openSqlite(":memory:");
    await migrate(database);
    let held: Promise<void> | undefined;
    const slow = new Proxy(database, {
      get(target, name) {
        const value = Reflect.get(target, name, target);
        if (name !== "packet") return typeof value === "function" ? value.bind(target) : value;
        return async (statements: readonly Sql[], signal?: AbortSignal) => {
          const results = await target.packet(statements, signal);
          const isFirst = statements[0]?.values.includes("a");
          if (isFirst && !held) {
            held = sleep(30);
            await held;
          }
          return results;
        };
      },
    });
    const [ours, theirs] = two(sqlJournal(slow));
    const orders: string[][] = [];
    const wf = flow(async (ctx) => {
      const order: string[] = [];
      const branch = async (name: string, millis: number) => {
        await ctx.step(name, () => sleep(millis));
        order.push(name);
      };
      await Promise.all([branch("a", 1), branch("b", 10)]);
      orders.push(order);
      await ctx.sleep("nap", 100);
    });
    await ours.drive(wf, input, { id: "r" });
    await theirs.run(wf, input, { id: "r" });
    expect(orders).toEqual([
      ["a", "b"],
      ["a", "b"],
    ]);
    await database.close();
  });

  test("that were committing when another failed are undone with the rest", async () => {
    const database = openSqlite(":memory:");
    await migrate(database);
    await database.packet([sql`CREATE TABLE effect (name TEXT)`]);
    const gate = Promise.withResolvers<void>();
    const committed = Promise.withResolvers<void>();
    let commits = 0;
    const lossy = pointed(database, async (point) => {
      if (point !== "tx.commit:after" || ++commits > 1) return;
      committed.resolve();
      await gate.promise;
      throw new UnknownOutcomeError("sqlite:", "it was committed");
    });
    const locks = sqliteStore(database);
    const rt = createRuntime({ journal: sqlJournal(lossy), locks, inlineWait: 5 });
    const wf = flow(async (ctx) => {
      const reserve = ctx.step.tx(
        "reserve",
        { lock: "sku/1" },
        async ({ tx, signal }) => {
          signal.addEventListener("abort", () => gate.resolve());
          await tx.packet([sql`INSERT INTO effect (name) VALUES ('reserved')`]);
        },
        async (_, { tx }) => tx.packet([sql`DELETE FROM effect`]),
      );
      const soldOut = committed.promise.then(() => {
        throw new TerminalError("SOLD_OUT");
      });
      await Promise.all([reserve, soldOut]);
    });
    const outcome = await within(20_000, rt.run(wf, input, { id: "r" }));
    expect(outcome).toMatchObject({ status: "failed", compensated: true });
    expect(await database.read(sql`SELECT name FROM effect`)).toEqual([]);
    await locks.close();
    await database.close();
  });

  test("that wait for one name of a signal have one each", async () => {
    const [rt] = two(memoryJournal());
    const wf = flow(async (ctx) =>
      Promise.all([ctx.waitFor("go", z.string()), ctx.waitFor("go", z.string())]),
    );
    await rt.start(wf, input, { id: "r" });
    for (const one of ["a", "b"]) await rt.signal("r", "go", one, { dedupeId: one });
    expect(await rt.drive(wf, input, { id: "r" })).toMatchObject({ output: ["a", "b"] });
  });

  test("that await something of their own get as far as they can before the run is parked", async () => {
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
    const outcome = await rt.drive(wf, input);
    expect(outcome).toMatchObject({ status: "suspended", reason: "signal" });
    expect(sent).toEqual(["32"]);
  });

  test("park the run although one of them has just been refused something", async () => {
    const [rt] = two(memoryJournal());
    const wf = flow(async (ctx) => {
      const twice = async () => {
        await ctx.step("a", async () => {});
        await ctx.step("b", { key: "a" }, async () => {});
      };
      await Promise.allSettled([ctx.waitFor("answer", z.string()), twice()]);
    });
    const outcome = await within(5_000, rt.drive(wf, input));
    expect(outcome).toMatchObject({ status: "suspended", reason: "signal" });
  });

  test("that nobody waits for yet may fail without harm to the process", async () => {
    const [ours, theirs] = two(memoryJournal());
    const wf = flow(async (ctx) => {
      const failing = ctx.step("failing", { retry: false }, async () => {
        throw new Error("no");
      });
      await ctx.sleep("nap", 100);
      return failing.catch(() => "caught");
    });
    expect(await ours.drive(wf, input, { id: "r" })).toMatchObject({ status: "suspended" });
    expect(await theirs.run(wf, input, { id: "r" })).toMatchObject({ output: "caught" });
  });

  test("that await something slow of their own are no change of the workflow", async () => {
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
      await ctx.sleep("nap", 100);
      return both;
    });
    await ours.drive(wf, input, { id: "r" });
    expect(await theirs.run(wf, input, { id: "r" })).toMatchObject({ output: ["b", "c"] });
  });

  test("that never come to an end are left where they are when the run is let go of", async () => {
    const [rt] = two(memoryJournal());
    const cut = new AbortController();
    let begun = false;
    const wf = flow(async (ctx) => {
      await ctx.step("a", async () => {});
      begun = true;
      await new Promise(() => {});
    });
    const driving = rt.drive(wf, input, { signal: cut.signal });
    await until(() => begun);
    cut.abort();
    expect(await within(5_000, driving)).toMatchObject({ status: "suspended" });
  });
});
