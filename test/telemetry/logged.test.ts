import { beforeEach, expect, test } from "vitest";
import { z } from "zod";
import { memoryJournal } from "../../core/journal/memory.ts";
import { sleep } from "../../core/lock/abort.ts";
import { createRuntime, workflow } from "../../core/steps/index.ts";
import { memoryStore } from "../../core/stores/memory/index.ts";
import { type Fields, type Level, logged, withFields } from "../../functions/telemetry/index.ts";

type Line = Fields & { readonly level: Level; readonly what: string };

const lines: Line[] = [];

beforeEach(() => {
  lines.length = 0;
});

const telemetry = logged((level, what, fields) => lines.push({ ...fields, level, what }));
const locks = memoryStore({ onEvent: telemetry.lock });

const greet = workflow({ name: "greet", version: 1, input: z.string() }, (ctx, name) =>
  ctx.step("say", { lock: "greeting/a" }, async ({ attempt }) => {
    if (attempt === 1) throw new Error("not yet");
    return `hello ${name}`;
  }),
);

test("every line of a run has it, and those of a step its attempt, its lock and its fence", async () => {
  const options = { journal: memoryJournal(), locks, skipPauses: true };
  const runtime = createRuntime({ ...options, ...telemetry.runtime });
  await withFields({ request: "q-1" }, () => runtime.drive(greet, "you", { id: "r-1" }));
  for (const line of lines) expect(line).toMatchObject({ run: "r-1", request: "q-1" });
  expect(lines.map(({ what }) => what)).toEqual([
    "run taken",
    "lock acquired",
    "lock released",
    "run recorded",
    "lock acquired",
    "run recorded",
    "lock released",
    "run ended",
  ]);
  const [first, second] = lines.filter(({ what }) => what === "lock acquired");
  expect([first, second]).toMatchObject([
    { step: "say", attempt: 1, lock: "greeting/a", level: "debug" },
    { step: "say", attempt: 2, lock: "greeting/a", level: "debug" },
  ]);
  const recorded = lines.filter(({ what }) => what === "run recorded");
  expect(recorded.at(-1)).toMatchObject({ step: "say", outcome: "ok", fence: second?.fence });
  expect(JSON.stringify(lines)).not.toContain("you");
});

test("what happens to locks is for debugging, but for what is wrong with them", async () => {
  const lock = await locks.lock("x", { ttl: 100, wait: 0, renew: false });
  const fence = String(lock.fence);
  expect(await locks.tryLock("x", { ttl: 100 })).toBeUndefined();
  await sleep(130);
  await lock.unlock();
  const known = { lock: "x", fence };
  expect(lines).toEqual([
    { ...known, level: "debug", what: "lock acquired", waited: expect.any(Number) },
    { lock: "x", level: "debug", what: "lock busy", waited: expect.any(Number) },
    { ...known, level: "warn", what: "lock lost", why: "expired" },
    expect.objectContaining({ ...known, what: "lock released", answer: "was-lost" }),
  ]);
});

test("of stock, refusals are told with what they were asked for", () => {
  const about = { kind: "decrement", lock: "sku/a", operationId: "o", fence: "1.2" } as const;
  const answer = { remaining: 0, replayed: false };
  telemetry.stock({ ...about, ...answer, type: "answered", outcome: "applied" });
  telemetry.stock({ ...about, ...answer, type: "answered", outcome: "sold-out" });
  const late = Object.assign(new Error("late"), { code: "FENCED_OUT" });
  telemetry.stock({ ...about, type: "refused", error: late });
  const known = { kind: "decrement", lock: "sku/a", operation: "o", fence: "1.2" };
  expect(lines).toEqual([
    { ...known, ...answer, outcome: "applied", level: "debug", what: "stock answered" },
    { ...known, ...answer, outcome: "sold-out", level: "info", what: "stock answered" },
    { ...known, error: late, level: "warn", what: "stock refused" },
  ]);
});
