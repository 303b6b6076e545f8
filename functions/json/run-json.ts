import type { RunDetails } from "../../core/journal/queries.ts";
import type { StepRecord } from "../../core/journal/records.ts";
import { describeSealed, isSealed } from "../../core/steps/envelope.ts";
import type { ErrorInfo } from "../../core/steps/errors.ts";
import { toComparable } from "../../core/steps/storable.ts";
import type { RunOutcome } from "../../core/steps/workflow.ts";
import { redact } from "../../infra/redact.ts";
import { shownError } from "./shown-value.ts";

/** Converts a value to JSON: dates become text, bigints digits, maps and sets arrays. */
export function toJson(value: unknown): unknown {
  return toComparable(value).json;
}

/** Converts a value that was encoded for the journal, in the same way. */
function fromJournal(encoded: string | undefined): unknown {
  if (encoded === undefined) return undefined;
  if (isSealed(encoded)) return describeSealed(encoded);
  const parsed = JSON.parse(encoded);
  // The result that a child run sends to its parent is plain JSON, without its wrapper.
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
  if (status === "blocked") {
    return { runId, status, error: errorJson(outcome.error), retryIn: outcome.retryIn };
  }
  const { reason, wakeIn } = outcome;
  return { runId, status, reason, ...(Number.isFinite(wakeIn) && { wakeIn }) };
}

export function runJson(run: RunDetails) {
  const { epoch: _, now: __, records, next, ending, error, input, signals, ...info } = run;
  return {
    ...info,
    input: fromJournal(input),
    ...(ending?.status === "completed" && { output: fromJournal(ending.value) }),
    ...(ending && ending.status !== "completed" && { error: errorJson(shownError(ending.value)) }),
    ...(error !== undefined && { error: errorJson(shownError(error)) }),
    ...(ending?.compensated && { compensated: ending.compensated }),
    timeline: records.map(stepJson),
    ...(next !== undefined && { next }),
    signals: signals
      .filter(({ name }) => !isInternalSignal(name))
      .map(({ number: _, payload, ...rest }) => ({ ...rest, payload: fromJournal(payload) })),
  };
}

/** Tells whether the engine itself sends the signal, such as the end of a child run. */
export function isInternalSignal(name: string): boolean {
  return name.startsWith("~");
}

function stepJson({ argsHash: _, epoch: __, value, ...record }: StepRecord) {
  const isError = record.outcome === "failed" || record.outcome === "retry";
  const plain = fromJournal(value);
  return { ...record, value: isError ? toPublicError(plain) : plain };
}

/** Error messages quote their origin, such as the URL of a database. */
function toPublicError(value: unknown): unknown {
  if (typeof value !== "object" || value === null) return value;
  const redactMessage = (key: string, member: unknown) =>
    key === "message" && typeof member === "string" ? redact(member) : member;
  const { error, ...info } = withoutPlace(JSON.parse(JSON.stringify(value, redactMessage)));
  return { ...info, ...(error !== undefined && { error: withoutPlace(error) }) };
}

/** The line of the code is for operators. */
function withoutPlace(info: object): { readonly error?: object } {
  const { where: _, ...rest } = info as { readonly where?: unknown };
  return rest;
}
