import { beforeEach, expect, test } from "vitest";
import { z } from "zod";
import { sleep } from "../../core/lock/abort.ts";
import { createRuntime, workflow } from "../../core/steps/index.ts";
import { memoryJournal } from "../../core/stores/memory/journal.ts";
import { memoryLocks } from "../../core/stores/memory/locks.ts";
import { logTelemetry, withLogFields } from "../../functions/telemetry/index.ts";
import type { Level, LogFields } from "../../functions/telemetry/log-line.ts";

type Line = LogFields & { readonly level: Level; readonly what: string };

const lines: Line[] = [];

beforeEach(() => {
  lines.length = 0;
});

const telemetry = logTelemetry((level, what, fields) => lines.push({ ...fields, level, what }));
const locks = memoryLocks({ onEvent: telemetry.lock });

const greet = workflow({ name: "greet", version: 1, input: z.string() }, (ctx, name) =>
  ctx.step("say", { lock: "greeting/a" }, async ({ attempt }) => {
    if (attempt === 1) throw new Error("not yet");
    return `hello ${name}`;
  }),
);

test("every line of a run has its id, and the lines of a step have attempt, lock and fence", async () => {
  const options = { journal: memoryJournal(), locks, skipPauses: true };
  const runtime = createRuntime({ ...options, ...telemetry.runtime });
  await withLogFields({ request: "q-1" }, () => runtime.execute(greet, "you", { id: "r-1" }));
  for (const line of lines) expect(line).toMatchObject({ run: "r-1", request: "q-1" });
  expect(lines.map(({ what }) => what)).toEqual([
    "run taken",
    "lock acquired",
    "lock released",
    "run error",
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
  const thrown = lines.find(({ what }) => what === "run error");
  const error = expect.objectContaining({ message: "not yet", stack: expect.any(String) });
  expect(thrown).toMatchObject({
    level: "warn",
    workflow: "greet",
    step: "say",
    attempt: 1,
    error,
  });
  const recorded = lines.filter(({ what }) => what === "run recorded");
  expect(recorded.at(-1)).toMatchObject({ step: "say", outcome: "ok", fence: second?.fence });
  expect(JSON.stringify(lines)).not.toContain("you");
});

test("events of locks have the level debug, and their failures the level warn", async () => {
  const lock = await locks.lock("x", { ttl: 1_000, wait: 0, renew: false });
  const fence = String(lock.fence);
  expect(await locks.tryLock("x", { ttl: 100 })).toBeUndefined();
  await sleep(1_030);
  await lock.unlock();
  const known = { lock: "x", fence };
  expect(lines).toEqual([
    { ...known, level: "debug", what: "lock acquired", waited: expect.any(Number) },
    { lock: "x", level: "debug", what: "lock busy", waited: expect.any(Number) },
    { ...known, level: "warn", what: "lock lost", why: "expired" },
    expect.objectContaining({ ...known, what: "lock released", answer: "was-lost" }),
  ]);
});

test("changes of stock and their errors are logged with their request", () => {
  const about = { kind: "decrement", lock: "sku/a", operationId: "o", fence: "1.2" } as const;
  const answer = { remaining: 0, replayed: false };
  telemetry.stock({ ...about, ...answer, type: "answered", outcome: "applied" });
  telemetry.stock({ ...about, ...answer, type: "answered", outcome: "sold-out" });
  const late = Object.assign(new Error("late"), { code: "FENCED_OUT" });
  telemetry.stock({ ...about, type: "failed", error: late });
  const known = { kind: "decrement", lock: "sku/a", operation: "o", fence: "1.2" };
  expect(lines).toEqual([
    { ...known, ...answer, outcome: "applied", level: "debug", what: "stock answered" },
    { ...known, ...answer, outcome: "sold-out", level: "info", what: "stock answered" },
    { ...known, error: late, level: "warn", what: "stock failed" },
  ]);
});
