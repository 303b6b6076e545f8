import * as z from "zod";
import { MAX_QUANTITY } from "../../core/inventory/inventory.ts";
import { RUN_STATUSES } from "../../core/journal/runs.ts";
import { checkText, LONGEST_SPAN } from "../../core/lock/checks.ts";

/** A string of 1 to `most` bytes without NUL. */
export function text(name: string, most = 255) {
  return z
    .string()
    .superRefine((value, context) => {
      try {
        checkText(name, value, most);
      } catch (error) {
        context.addIssue((error as Error).message);
      }
    })
    .meta({ minLength: 1, maxLength: most });
}

/** An integer of a query, in decimal digits. `Number` would also read "" and "0x10". */
export function digits(least: number, most: number) {
  return z.preprocess(
    (value) => (typeof value === "string" && /^\d+$/.test(value) ? Number(value) : value),
    z.int("not an integer in decimal digits").min(least).max(most),
  );
}

export const NoBody = z.undefined("not empty: this request has no body, or {}");

export const Quantity = z.int().min(1).max(MAX_QUANTITY).meta({ description: "whole units" });

export const QuantityBody = z.strictObject({ quantity: Quantity });

/** Setting the stock allows a quantity of 0. */
export const SetBody = z.strictObject({ quantity: z.int().min(0).max(MAX_QUANTITY) });

export const ReserveBody = z.strictObject({
  quantity: Quantity,
  expiresIn: z.number().min(1).max(LONGEST_SPAN).meta({ description: "milliseconds" }),
});

export const Stock = z
  .object({
    sku: z.string(),
    onHand: z.int(),
    reserved: z.int(),
    sold: z.int(),
    supplied: z.int().meta({ description: "all units ever supplied: onHand + reserved + sold" }),
  })
  .meta({ id: "Stock" });

export const Change = z
  .object({
    sku: z.string(),
    operationId: z.string(),
    outcome: z.literal("applied"),
    remaining: z.int().meta({ description: "the units on hand right after the change" }),
  })
  .meta({ id: "Change" });

const Entry = z
  .object({
    seq: z.int(),
    kind: z.enum(["set", "restock", "decrement", "reserve", "confirm", "cancel", "expire"]),
    quantity: z.int(),
    outcome: z.enum(["applied", "sold-out", "closed"]),
    remaining: z.int(),
    operationId: z.string().optional(),
    reservation: z.string().optional(),
    fence: z.string().optional(),
    at: z.iso.datetime(),
  })
  .meta({ id: "Entry" });

export const History = z
  .object({
    sku: z.string(),
    entries: z.array(Entry).meta({ description: "newest first" }),
    before: z
      .int()
      .optional()
      .meta({ description: "the parameter `before` of the next page; absent on the last page" }),
  })
  .meta({ id: "History" });

/** `no`: an undo failed. `unclear`: a step without an undo may have had its effect. */
const Compensated = z.enum(["yes", "no", "unclear"]);

export const RunFailure = z
  .object({
    name: z.string(),
    code: z.string().optional(),
    message: z.string(),
    data: z.unknown().optional(),
  })
  .meta({ id: "RunFailure" });

export const Completed = z
  .object({ runId: z.string(), status: z.literal("completed"), output: z.unknown() })
  .meta({ id: "Completed" });

export const Suspended = z
  .object({
    runId: z.string(),
    status: z.literal("suspended"),
    reason: z.enum([
      "sleep",
      "signal",
      "deadline",
      "lock-busy",
      "retry-delay",
      "child",
      "debounce",
    ]),
    wakeIn: z
      .number()
      .optional()
      .meta({ description: "milliseconds; absent when only a signal wakes the run" }),
  })
  .meta({ id: "Suspended" });

/** The request is recorded; another process executes it. */
export const Accepted = z.object({ runId: z.string() }).meta({ id: "Accepted" });

/** The workflow's answer to an update. */
export const Answered = z.object({ output: z.unknown() }).meta({ id: "Answered" });

/** A value that a run has published. */
export const Published = z.object({ value: z.unknown() }).meta({ id: "Published" });

/** The state of a run after a signal or a cancellation. */
export const RunState = z
  .object({
    runId: z.string(),
    status: z.enum(["completed", "failed", "cancelled", "suspended", "blocked", "busy"]),
    output: z.unknown().optional(),
    error: RunFailure.optional(),
    compensated: Compensated.optional(),
    reason: z.string().optional(),
    wakeIn: z.number().optional(),
    retryIn: z.number().optional(),
  })
  .meta({ id: "RunState" });

const Step = z
  .object({
    key: z.string(),
    kind: z.enum([
      "step",
      "tx",
      "sleep",
      "signal",
      "child",
      "value",
      "undo",
      "failure",
      "fork",
      "refusal",
    ]),
    outcome: z.enum(["ok", "failed", "started", "retry"]),
    attempt: z.int(),
    at: z.iso.datetime(),
    took: z.number().optional().meta({ description: "milliseconds" }),
    waited: z.number().optional().meta({ description: "milliseconds of waiting for locks" }),
    fence: z.string().optional(),
    value: z.unknown().optional(),
    valueBytes: z
      .int()
      .optional()
      .meta({ description: "the length of a large value, which is left out" }),
  })
  .meta({ id: "Step" });

const StepInProgress = z.object({
  key: z.string(),
  since: z.iso.datetime(),
  waitsFor: z.string().optional().meta({ description: "the busy lock" }),
});

const Signal = z.object({
  name: z.string(),
  dedupeId: z.string(),
  at: z.iso.datetime(),
  payload: z.unknown(),
});

export const Run = z
  .object({
    runId: z.string(),
    part: z.int().meta({ description: "counts the run's histories" }),
    workflow: z.string(),
    version: z.int(),
    status: z.enum(RUN_STATUSES),
    reason: z.string().optional().meta({ description: "the reason why the run is parked" }),
    waitsFor: z.string().optional().meta({ description: "the busy lock of a parked run" }),
    inProgress: z.array(StepInProgress).meta({
      description: "the steps of a running run that take longer than a second, at the last renewal",
    }),
    queue: z.string(),
    key: z.string().optional().meta({ description: "the key whose runs take turns with others'" }),
    priority: z.int(),
    cancelled: z.boolean(),
    crashes: z.int(),
    owner: z.string(),
    origin: z
      .object({ runId: z.string(), step: z.string() })
      .optional()
      .meta({ description: "of a fork: the run whose results it uses, and its own first step" }),
    forks: z.array(z.string()).meta({ description: "the ids of the run's forks" }),
    startedAt: z.iso.datetime(),
    changedAt: z.iso.datetime(),
    dueAt: z.iso.datetime().optional(),
    input: z.unknown(),
    output: z.unknown().optional(),
    error: RunFailure.optional(),
    compensated: Compensated.optional(),
    timeline: z.array(Step).meta({ description: "a page, in the order of writing" }),
    next: z.string().optional().meta({ description: "`after` for the next page of the timeline" }),
    signals: z.array(Signal),
  })
  .meta({ id: "Run" });

const Rate = z.strictObject({
  runs: z.int().min(1),
  per: z
    .union([z.number(), z.string()])
    .meta({ description: 'milliseconds, or a text such as "1m"; at most a day' }),
});

/** The limits of one queue. */
export const Limits = z
  .strictObject({
    concurrency: z.int().min(1).optional().meta({ description: "the most runs at a time" }),
    perKey: z.int().min(1).optional().meta({ description: "the most runs of one key at a time" }),
    rate: Rate.optional().meta({ description: "the most claims per span" }),
    ratePerKey: Rate.optional().meta({ description: "the most claims of one key per span" }),
  })
  .meta({ id: "Limits" });

export const AllLimits = z
  .object({ queues: z.record(z.string(), Limits) })
  .meta({ id: "AllLimits" });

export const ProblemBody = z
  .looseObject({
    type: z.string(),
    title: z.string(),
    status: z.int(),
    code: z.string().meta({ description: "for programs, such as SOLD_OUT" }),
    detail: z.string(),
    requestId: z.string(),
  })
  .meta({ id: "Problem" });

const CheckResults = z.record(z.string(), z.enum(["ok", "failed"]));

export const Health = z.object({ status: z.literal("ok") }).meta({ id: "Health" });

export const Ready = z
  .object({ status: z.enum(["ready", "not-ready"]), checks: CheckResults })
  .meta({ id: "Ready" });
