import * as z from "zod";
import { MOST_UNITS } from "../../core/inventory/inventory.ts";
import { checkText, LONGEST_SPAN } from "../../core/lock/checks.ts";

/** A text of 1 to 255 bytes, any character but NUL. */
export function text(what: string) {
  return z
    .string()
    .superRefine((value, context) => {
      try {
        checkText(what, value, 255);
      } catch (error) {
        context.addIssue((error as Error).message);
      }
    })
    .meta({ minLength: 1, maxLength: 255 });
}

export const Quantity = z.int().min(1).max(MOST_UNITS).meta({ description: "whole units" });

export const QuantityBody = z.strictObject({ quantity: Quantity });

/** Of a set: none is allowed. */
export const SetBody = z.strictObject({ quantity: z.int().min(0).max(MOST_UNITS) });

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
    supplied: z.int().meta({ description: "all that ever came in: onHand + reserved + sold" }),
  })
  .meta({ id: "Stock" });

export const Change = z
  .object({
    sku: z.string(),
    operationId: z.string(),
    outcome: z.literal("applied"),
    remaining: z.int().meta({ description: "on hand right after the change" }),
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
    before: z.int().optional().meta({ description: "for the next page, if there may be one" }),
  })
  .meta({ id: "History" });

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
    reason: z.enum(["sleep", "signal", "deadline", "lock-busy", "retry-delay", "child"]),
    wakeIn: z
      .number()
      .optional()
      .meta({ description: "milliseconds; without it only a signal wakes the run" }),
  })
  .meta({ id: "Suspended" });

/** What was asked for is recorded; others see to it. */
export const Accepted = z.object({ runId: z.string() }).meta({ id: "Accepted" });

/** Where a run is after somebody has told it something. */
export const RunState = z
  .object({
    runId: z.string(),
    status: z.enum(["completed", "failed", "suspended", "busy"]),
    output: z.unknown().optional(),
    error: RunFailure.optional(),
    compensated: z.boolean().optional(),
    reason: z.string().optional(),
    wakeIn: z.number().optional(),
  })
  .meta({ id: "RunState" });

const Step = z
  .object({
    key: z.string(),
    kind: z.enum(["step", "tx", "sleep", "signal", "child", "value", "undo", "failure"]),
    outcome: z.enum(["ok", "failed", "started", "retry"]),
    attempt: z.int(),
    at: z.iso.datetime(),
    took: z.number().optional().meta({ description: "milliseconds" }),
    waited: z.number().optional().meta({ description: "milliseconds, for its locks" }),
    fence: z.string().optional(),
    value: z.unknown().optional(),
  })
  .meta({ id: "Step" });

const Signal = z.object({
  name: z.string(),
  dedupeId: z.string(),
  at: z.iso.datetime(),
  payload: z.unknown(),
});

export const Run = z
  .object({
    runId: z.string(),
    workflow: z.string(),
    version: z.int(),
    status: z.enum(["running", "parked", "completed", "failed", "cancelled"]),
    reason: z.string().optional().meta({ description: "while it is parked" }),
    cancelled: z.boolean(),
    crashes: z.int(),
    owner: z.string(),
    startedAt: z.iso.datetime(),
    changedAt: z.iso.datetime(),
    dueAt: z.iso.datetime().optional(),
    input: z.unknown(),
    output: z.unknown().optional(),
    error: RunFailure.optional(),
    compensated: z.boolean().optional(),
    timeline: z.array(Step).meta({ description: "in the order in which it was written" }),
    signals: z.array(Signal),
  })
  .meta({ id: "Run" });

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

const Checked = z.record(z.string(), z.enum(["ok", "failed"]));

export const Health = z.object({ status: z.literal("ok") }).meta({ id: "Health" });

export const Ready = z
  .object({ status: z.enum(["ready", "not-ready"]), checks: Checked })
  .meta({ id: "Ready" });
