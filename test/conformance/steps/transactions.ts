import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { asText, sql } from "../../../core/database/sql.ts";
import { createRuntime, type Runtime, type TxScope } from "../../../core/steps/index.ts";
import { flow } from "../../support/flow.ts";
import type { DatabaseUnderTest } from "../../support/steps-under-test.ts";
import { until } from "../../support/until.ts";

/** The promises of steps in transactions of the journal's database. */
export function describeStepTransactions(
  name: string,
  open: () => Promise<DatabaseUnderTest>,
): void {
  describe.concurrent(`steps in transactions on ${name}`, () => {
    let under: DatabaseUnderTest;
    const closing: (() => Promise<void>)[] = [];

    beforeAll(async () => {
      under = await open();
    });

    afterAll(async () => {
      for (const close of closing) await close();
      await under.close();
    });

    const runtime = (): Runtime => {
      const { journal, locks } = under.open();
      closing.push(() => locks.close());
      return createRuntime({ journal, locks, inlineWait: 5 });
    };
    const newId = () => `run-${crypto.randomUUID()}`;
    const insert = async ({ tx, runId }: TxScope, what: string) => {
      await tx.batch([sql`INSERT INTO effect (name) VALUES (${`${runId} ${what}`})`]);
    };
    const effects = async (id: string) => {
      const rows = await under.database.read(sql`SELECT name FROM effect ORDER BY name`);
      const names = rows.map((row) => asText(row.name));
      return names.filter((each) => each.startsWith(id)).map((each) => each.slice(id.length + 1));
    };

    test("a transaction commits the effect and the record together, or neither", async () => {
      const rt = runtime();
      const lock = newId();
      const wf = flow(async (ctx) => {
        await ctx.step.tx("kept", { lock }, (scope) => insert(scope, "kept"));
        await ctx.step.tx("dropped", { lock, retry: false }, async (scope) => {
          await insert(scope, "dropped");
          throw new Error("after the write");
        });
      });
      const id = newId();
      expect(await rt.execute(wf, { n: 1 }, { id })).toMatchObject({ status: "failed" });
      expect(await effects(id)).toEqual(["kept"]);
    });

    test("an undo runs in a transaction under the same lock", async () => {
      const rt = runtime();
      const lock = newId();
      const fences: string[] = [];
      const wf = flow(async (ctx) => {
        await ctx.step.tx(
          "take",
          { lock },
          async (scope) => {
            fences.push(scope.fence.toString());
            await insert(scope, "take");
          },
          async (_, scope) => {
            fences.push(scope.fence.toString());
            await insert(scope, "undo");
          },
        );
        throw new Error("later");
      });
      const id = newId();
      expect(await rt.execute(wf, { n: 1 }, { id })).toMatchObject({ compensated: "yes" });
      expect(await effects(id)).toEqual(["take", "undo"]);
      expect(fences.toSorted()).toEqual(fences);
      expect(new Set(fences).size).toBe(2);
    });

    test("a step with a late fence is refused, and succeeds under a later one", async () => {
      const rt = runtime();
      const lock = newId();
      const fences: string[] = [];
      const other = under.open().locks;
      closing.push(() => other.close());
      const wf = flow(async (ctx) =>
        ctx.step.tx("take", { lock, retry: { base: 1 } }, async (scope) => {
          fences.push(scope.fence.toString());
          await insert(scope, "take");
        }),
      );
      const id = newId();
      // Another holder has claimed the resource with a later fence than the store issues next.
      await under.database.batch([
        sql`INSERT INTO lockstep_claim (resource, generation, token) VALUES (${lock}, 0, 3)`,
      ]);
      expect(await rt.run(wf, { n: 1 }, { id })).toMatchObject({ status: "completed" });
      expect(await effects(id)).toEqual(["take"]);
      expect(fences).toHaveLength(1);
      const { records = [] } = (await rt.journal.show(id)) ?? {};
      const late = records.filter(({ outcome }) => outcome === "retry");
      expect(late).toHaveLength(2);
      for (const { value } of late) expect(value).toContain("FENCED_OUT");
    });

    test("transactions with two locks in opposite orders do not block each other", async () => {
      const clients = [runtime(), runtime()];
      const names = [newId(), newId()];
      const wf = flow(async (ctx, { n }) => {
        const lock = n === 0 ? names : names.toReversed();
        for (let i = 0; i < 5; i += 1) {
          await ctx.step.tx("both", { lock }, (scope) => insert(scope, `both ${i}`));
        }
      });
      const ids = [newId(), newId()];
      const outcomes = await Promise.all(
        clients.map((rt, n) => rt.run(wf, { n }, { id: ids[n] as string })),
      );
      for (const { status } of outcomes) expect(status).toBe("completed");
      for (const id of ids) expect(await effects(id)).toHaveLength(5);
    });

    test("a transaction that times out is rolled back, together with its late writes", async () => {
      const rt = runtime();
      const lock = newId();
      const isLate = Promise.withResolvers<void>();
      let calls = 0;
      const wf = flow(async (ctx) =>
        ctx.step.tx(
          "slow",
          // On a busy machine, more than one attempt may time out.
          { lock, timeout: 500, retry: { attempts: 100, base: 1 } },
          async (scope) => {
            calls += 1;
            if (calls > 1) return insert(scope, `call ${calls}`);
            try {
              await insert(scope, "early");
              await until(() => scope.signal.aborted);
              await insert(scope, "late");
            } finally {
              isLate.resolve();
            }
          },
        ),
      );
      const id = newId();
      expect(await rt.run(wf, { n: 1 }, { id })).toMatchObject({ status: "completed" });
      await isLate.promise;
      expect(await effects(id)).toEqual([`call ${calls}`]);
    });

    test("a step that catches the error of its statement fails, is retried, and then fails the run", async () => {
      const rt = runtime();
      let calls = 0;
      const wf = flow(async (ctx) => {
        const retry = { attempts: 2, base: 1 };
        await ctx.step.tx("twice", { lock: newId(), retry }, async (scope) => {
          calls += 1;
          await insert(scope, "twice");
          const nameless = sql`INSERT INTO effect (name) VALUES (NULL)`;
          await scope.tx.batch([nameless]).catch(() => {});
        });
      });
      const id = newId();
      expect(await rt.run(wf, { n: 1 }, { id })).toMatchObject({
        status: "failed",
        error: { message: expect.stringContaining("the step ignored it") },
      });
      expect(calls).toBe(2);
      expect(await effects(id)).toEqual([]);
    });

    test("no other transaction changes the rows between the read and the write of a step", async () => {
      const rts = [runtime(), runtime(), runtime()];
      const lock = newId();
      await under.database.batch([sql`INSERT INTO effect (name) VALUES (${`${lock} 0`})`]);
      const wf = flow(async (ctx) =>
        ctx.step.tx("add", { lock }, async ({ tx }) => {
          const pattern = `${lock} %`;
          const [answer] = await tx.batch([
            sql`SELECT name FROM effect WHERE name LIKE ${pattern}`,
          ]);
          const current = Number(asText(answer?.rows[0]?.name).split(" ")[1]);
          await sleep(Math.random() * 3);
          const next = `${lock} ${current + 1}`;
          await tx.batch([sql`UPDATE effect SET name = ${next} WHERE name LIKE ${pattern}`]);
        }),
      );
      await Promise.all(
        rts.map(async (rt) => {
          for (let i = 0; i < 5; i += 1) await rt.run(wf, { n: 1 }, { id: newId() });
        }),
      );
      expect(await effects(lock)).toEqual(["15"]);
    });
  });
}
