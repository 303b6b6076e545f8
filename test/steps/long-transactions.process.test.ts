import { setTimeout as sleep } from "node:timers/promises";
import { describe, expect, test } from "vitest";
import { asText, sql } from "../../core/database/sql.ts";
import { createRuntime, type RunEvent, type TxScope } from "../../core/steps/index.ts";
import { flow } from "../support/flow.ts";
import { runScript } from "../support/script.ts";
import { sqliteSteps } from "../support/steps-under-test.ts";
import { within } from "../support/until.ts";

/** The lease of the run, and the ttl of the step's lock. */
const LEASE = 2_000;
const BODY = 5_000;

const insert = ({ tx }: TxScope, name: string) =>
  tx.batch([sql`INSERT INTO effect (name) VALUES (${name})`]);

/** Executes a step whose transaction outlasts its leases, while another process covets the run and the lock. */
async function executeLong(end: (scope: TxScope) => Promise<void>) {
  const under = await sqliteSteps();
  const { journal, locks } = under.open();
  const taken: RunEvent[] = [];
  const lines: string[] = [];
  const bodies: { readonly from: number; readonly to: number }[] = [];
  const onEvent = (event: RunEvent) => event.type === "taken" && taken.push(event);
  const runtime = createRuntime({ journal, locks, lease: LEASE, inlineWait: 1_000, onEvent });
  const lock = { names: "sku/1", ttl: LEASE };
  using other = runScript("covet", under.url, lock.names, "r");
  expect(await other.line()).toBe("ready");
  const reading = (async () => {
    for (let line = await other.next(); line; line = await other.next()) lines.push(line);
  })();
  const wf = flow(async (ctx) =>
    ctx.step.tx("long", { lock, retry: { base: 1 } }, async (scope) => {
      await insert(scope, `attempt ${scope.attempt}`);
      const from = Date.now();
      other.child.kill("SIGUSR2");
      await sleep(BODY);
      scope.lock.assertHeld();
      bodies.push({ from, to: Date.now() });
      await end(scope);
    }),
  );
  const outcome = await within(60_000, runtime.run(wf, { n: 1 }, { id: "r" }));
  other.child.kill("SIGKILL");
  await reading;
  const rows = await under.database.read(sql`SELECT name FROM effect`);
  await locks.close();
  await under.close();
  expect(outcome).toMatchObject({ status: "completed" });
  expect(taken).toHaveLength(1);
  expect(lines.filter((line) => line.startsWith("run"))).toEqual([]);
  const times = lines.map((line) => Number(line.split(" ")[1]));
  expect(times.filter((at) => bodies.some(({ from, to }) => from < at && at < to))).toEqual([]);
  return rows.map(({ name }) => asText(name));
}

describe.concurrent("a transaction on SQLite that outlasts its leases", () => {
  test("commits once, and loses neither the run nor the lock", async () => {
    expect(await executeLong(async () => {})).toEqual(["attempt 1"]);
  });

  test("is rolled back when its body fails, and the run goes on with the next attempt", async () => {
    const effects = await executeLong(async ({ attempt }) => {
      if (attempt === 1) throw new Error("not yet");
    });
    expect(effects).toEqual(["attempt 2"]);
  });
});
