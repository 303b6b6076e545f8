import { type Attributes, type Span, SpanStatusCode, trace } from "@opentelemetry/api";
import type { LockEvent } from "../../core/lock/events.ts";
import { type ErrorInfo, toErrorInfo } from "../../core/steps/errors.ts";
import type { InterceptedStep } from "../../core/steps/interceptor.ts";
import { redact } from "../../infra/redact.ts";
import { failureOf, type PartialTelemetry } from "./telemetry.ts";

/** Creates a span for each execution of a run, each attempt at a step, and the wait and the hold of each lock. */
export function spanTelemetry() {
  return {
    lock: onLockEvent,
    runtime: {
      interceptor: {
        run: ({ runId, workflow, crashes }, body) => {
          const attributes = { "lockstep.run_id": runId, "lockstep.workflow": workflow };
          const span = { name: `run ${workflow}`, ...attributes, "lockstep.crashes": crashes };
          return inSpan(span, body, (outcome, end) => {
            end.setAttribute("lockstep.outcome", outcome.status);
            if (outcome.status === "failed") fail(end, outcome.error);
          });
        },
        step: (step, body) =>
          inSpan(stepSpan(step), body, (record, end) => {
            end.setAttribute("lockstep.outcome", record.outcome);
            if (record.fence !== undefined) end.setAttribute("lockstep.fence", record.fence);
          }),
      },
    },
  } satisfies PartialTelemetry;
}

type SpanOptions = Attributes & { readonly name: string };

function stepSpan({ runId, workflow, name, key, kind, attempt }: InterceptedStep): SpanOptions {
  return {
    name: `${kind === "undo" ? "undo" : "step"} ${name}`,
    "lockstep.run_id": runId,
    "lockstep.workflow": workflow,
    "lockstep.step": key,
    "lockstep.attempt": attempt,
  };
}

const tracer = () => trace.getTracer("lockstep");

/** Runs `body` in a span, which becomes the parent of the spans in `body`. */
function inSpan<T>(
  { name, ...attributes }: SpanOptions,
  body: () => Promise<T>,
  done: (result: T, span: Span) => void,
): Promise<T> {
  return tracer().startActiveSpan(name, { attributes }, async (span) => {
    try {
      const result = await body();
      done(result, span);
      return result;
    } catch (thrown) {
      const { outcome, error } = failureOf(thrown);
      span.setAttribute("lockstep.outcome", outcome);
      if (outcome === "failed") fail(span, toErrorInfo(error));
      throw thrown;
    } finally {
      span.end();
    }
  });
}

/** Writes the span when the wait or the hold is over, so no state is kept for a lock that is never released. */
function onLockEvent(event: LockEvent): void {
  const { type } = event;
  if ("waited" in event) writeSpan("lock wait", event.waited, event, type);
  else if ("held" in event)
    writeSpan("lock hold", event.held, event, "answer" in event ? event.answer : "failed");
  else if (type !== "renewed") addSpanEvent(event);
}

/** Adds an event to the span of the work under the lock. */
function addSpanEvent(
  event: Extract<LockEvent, { readonly type: "lost" | "renewal-failed" }>,
): void {
  const span = trace.getActiveSpan();
  if (!span?.isRecording()) return;
  const more =
    event.type === "lost" ? { "lockstep.reason": event.why } : errorAttributes(event.error);
  span.addEvent(`lock ${event.type}`, { ...lockAttributes(event), ...more });
}

function writeSpan(name: string, span: number, event: LockEvent, outcome: string): void {
  const attributes = { ...lockAttributes(event), "lockstep.outcome": outcome };
  const written = tracer().startSpan(name, { attributes, startTime: Date.now() - span });
  if ("error" in event) fail(written, toErrorInfo(event.error));
  written.end();
}

function lockAttributes({ names, fences }: LockEvent): Attributes {
  const fence = fences && { "lockstep.fence": fences.join(" ") };
  return { "lockstep.lock": names.join(" "), ...fence };
}

/** Records an error without stack and cause: both may contain data of the work. */
function fail(span: Span, { name, message: text, code }: ErrorInfo): void {
  const message = redact(text);
  span.recordException({ name, message, ...(code !== undefined && { code }) });
  span.setStatus({ code: SpanStatusCode.ERROR, message });
}

function errorAttributes(error: unknown): Attributes {
  const { name, message, code } = toErrorInfo(error);
  return { "exception.type": code ?? name, "exception.message": redact(message) };
}
