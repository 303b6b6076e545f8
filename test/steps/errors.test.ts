import { expect, test } from "vitest";
import { z } from "zod";
import type { RuntimeOptions } from "../../core/steps/contract.ts";
import {
  createRuntime,
  TerminalError,
  type WorkflowContext,
  workflow,
} from "../../core/steps/index.ts";
import type { WorkflowDefinition } from "../../core/steps/workflow.ts";
import { memoryJournal } from "../../core/stores/memory/journal.ts";
import { drawRun } from "../../functions/cli/terminal/draw-run.ts";
import { runJson } from "../../functions/json/run-json.ts";

type Reported = Parameters<NonNullable<RuntimeOptions["onError"]>>;

/** Executes a body, and returns the errors that `onError` got. */
async function failing(body: (ctx: WorkflowContext) => Promise<unknown>) {
  const reported: Reported[] = [];
  const journal = memoryJournal();
  const runtime = createRuntime({
    journal,
    skipPauses: true,
    onError(...given) {
      reported.push(given);
      throw new Error("a failing listener");
    },
  });
  const wf = workflow({ name: "failing", version: 1, input: z.number() }, body);
  const outcome = await runtime.execute(wf, 1, { id: "r" });
  const run = await journal.show("r");
  if (!run) throw new Error("there is no run");
  return { outcome, reported, run };
}

const bug = () => {
  const order: { items?: string[] } = {};
  return (order.items as string[]).length;
};

const about = { runId: "r", workflow: "failing" };

test("every failed attempt of a step is reported once, with the error as it was thrown", async () => {
  const { reported, outcome } = await failing((ctx) =>
    ctx.step("charge", { retry: { attempts: 2, base: 1, max: 1 } }, async () => bug()),
  );
  expect(outcome.status).toBe("failed");
  expect(reported.map(([, at]) => at)).toEqual([
    { ...about, name: "charge", key: "charge", kind: "step", attempt: 1 },
    { ...about, name: "charge", key: "charge", kind: "step", attempt: 2 },
  ]);
  for (const [error] of reported) {
    expect(error).toBeInstanceOf(TypeError);
    expect((error as Error).stack).toMatch(/errors\.test\.ts:\d+/);
  }
});

test("errors of the workflow's own code and of undos are reported", async () => {
  const thrown = new TerminalError("REFUSED");
  const { reported } = await failing(async (ctx) => {
    await ctx.step(
      "book",
      { retry: false },
      async () => 1,
      async () => bug(),
    );
    throw thrown;
  });
  expect(reported[0]).toEqual([thrown, about]);
  expect(reported[1]?.[1]).toMatchObject({ ...about, key: "~undo/book", attempt: 1 });
});

test("a parked run reports nothing", async () => {
  const { reported, outcome } = await failing((ctx) => ctx.waitFor("paid", z.number()));
  expect(outcome.status).toBe("suspended");
  expect(reported).toEqual([]);
});

test("runs show names step, attempt, code, file and line; journal and JSON hold no stack", async () => {
  const { run } = await failing((ctx) =>
    ctx.step("charge", { retry: { attempts: 2, base: 1, max: 1 } }, async () => bug()),
  );
  const picture = drawRun(run, 200);
  expect(picture).toMatch(/TypeError: .* \(errors\.test\.ts:\d+\)/);
  expect(picture).toContain("failed  STEP_FAILED: step");
  expect(picture).toContain('in step "charge", attempt 2');
  const journaled = run.records.map(({ value }) => value);
  expect([...journaled, run.ending?.value].join()).not.toMatch(/\\n +at /);
  expect(JSON.stringify(runJson(run))).not.toMatch(/test\.ts/);
});

test("a workflow without a schema of its input is refused when it is defined", () => {
  const definition = { name: "open", version: 1 } as unknown as WorkflowDefinition<z.ZodNumber>;
  expect(() => workflow(definition, async () => {})).toThrow(TypeError);
  expect(() => workflow(definition, async () => {})).toThrow(/workflow "open".*`input`/);
});
