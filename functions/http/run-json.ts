import superjson from "superjson";
import type { RunDetails, StepRecord } from "../../core/journal/journal.ts";
import type { ErrorInfo } from "../../core/steps/errors.ts";
import type { RunOutcome } from "../../core/steps/workflow.ts";
import { redact } from "../../infra/redact.ts";

/** A value as JSON: dates as text, bigints as digits, maps and sets as arrays. */
export function toJson(value: unknown): unknown {
  return superjson.serialize(value).json;
}

/** What was encoded for the journal, the same way. */
function fromJournal(encoded: string | undefined): unknown {
  if (encoded === undefined) return undefined;
  const parsed = JSON.parse(encoded);
  // What a child tells its parent is JSON without more.
  return typeof parsed === "object" && parsed !== null && "json" in parsed ? parsed.json : parsed;
}

export function errorJson({ name, code, message, data }: ErrorInfo) {
  return {
    name,
    code,
    message: redact(message),
    ...(data !== undefined && { data: toJson(data) }),
  };
}

export function stateJson(outcome: RunOutcome<unknown>): Readonly<Record<string, unknown>> {
  const { runId, status } = outcome;
  if (status === "completed") return { runId, status, output: toJson(outcome.output) };
  if (status === "busy") return { runId, status };
  if (status === "failed") {
    return { runId, status, error: errorJson(outcome.error), compensated: outcome.compensated };
  }
  const { reason, wakeIn } = outcome;
  return { runId, status, reason, ...(Number.isFinite(wakeIn) && { wakeIn }) };
}

export function runJson(run: RunDetails) {
  const { epoch: _, now: __, records, ending, input, signals, ...info } = run;
  const value = fromJournal(ending?.value);
  return {
    ...info,
    input: fromJournal(input),
    ...(ending?.status === "completed" && { output: value }),
    ...(ending && ending.status !== "completed" && { error: errorJson(value as ErrorInfo) }),
    ...(ending && { compensated: ending.compensated }),
    timeline: records.map(stepJson),
    signals: signals
      .filter(({ name }) => !isInternal(name))
      .map(({ payload, ...rest }) => ({ ...rest, payload: fromJournal(payload) })),
  };
}

/** What the engine tells itself, such as the end of a child. */
export function isInternal(name: string): boolean {
  return name.startsWith("~");
}

function stepJson({ argsHash: _, epoch: __, value, ...record }: StepRecord) {
  const isError = record.outcome === "failed" || record.outcome === "retry";
  const plain = fromJournal(value);
  return { ...record, value: isError ? redacted(plain) : plain };
}

/** Errors quote what they come from, such as the URL of a database. */
function redacted(value: unknown): unknown {
  if (value === undefined) return undefined;
  const hide = (key: string, member: unknown) =>
    key === "message" && typeof member === "string" ? redact(member) : member;
  return JSON.parse(JSON.stringify(value, hide));
}
