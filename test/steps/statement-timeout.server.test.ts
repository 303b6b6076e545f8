import { expect, inject, test } from "vitest";
import { sql } from "../../core/database/sql.ts";
import { createRuntime } from "../../core/steps/index.ts";
import { flow } from "../support/flow.ts";
import { sqlServerSteps } from "../support/steps-under-test.ts";

const servers = [
  ...inject("sqlServers").map((server) => ({ ...server, sleep: sql`SELECT SLEEP(100)` })),
  ...inject("postgresServers").map((server) => ({ ...server, sleep: sql`SELECT pg_sleep(100)` })),
];

test.each(servers)(
  "the timeout of a step ends a statement of its transaction on $name",
  async ({ sleep, ...server }) => {
    const under = await sqlServerSteps(server);
    const { journal, locks } = under.open();
    const runtime = createRuntime({ journal, locks });
    const slow = flow(async (ctx) => {
      const options = { lock: "slow", timeout: 300, retry: false } as const;
      await ctx.step.tx("slow", options, async ({ tx }) => {
        await tx.batch([sleep]);
      });
    });
    const startedAt = performance.now();
    expect(await runtime.run(slow, { n: 1 }, { id: "slow" })).toMatchObject({
      status: "failed",
      error: { code: "STEP_TIMEOUT" },
    });
    expect(performance.now() - startedAt).toBeLessThan(50_000);
    await locks.close();
    await under.close();
  },
);
