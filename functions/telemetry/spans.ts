import { type Attributes, type Span, SpanStatusCode, trace } from "@opentelemetry/api";
import type { LockEvent } from "../../core/lock/events.ts";
import type { CarriedStep } from "../../core/steps/around.ts";
import { type ErrorInfo, toErrorInfo } from "../../core/steps/errors.ts";
import { redact } from "../../infra/redact.ts";
import { endingOf } from "./ending.ts";
import type { Telemetry } from "./telemetry.ts";

/** A span for each run that is carried, each attempt at a step, and for the wait and the hold of each lock. */
export function spans(): Telemetry {
  return {
    lock: spanOfLock,
    stock: () => {},
    runtime: {
      onEvent: () => {},
      around: {
        run: ({ runId, workflow, crashes }, body) => {
          const attributes = { "lockstep.run_id": runId, "lockstep.workflow": workflow };
          const span = { name: `run ${workflow}`, ...attributes, "lockstep.crashes": crashes };
          return spanned(span, body, (outcome, end) => {
            end.setAttribute("lockstep.outcome", outcome.status);
            if (outcome.status === "failed") fail(end, outcome.error);
          });
        },
        step: (step, body) =>
          spanned(ofStep(step), body, (record, end) => {
            end.setAttribute("lockstep.outcome", record.outcome);
            if (record.fence !== undefined) end.setAttribute("lockstep.fence", record.fence);
          }),
      },
    },
  };
}

type Named = Attributes & { readonly name: string };

function ofStep({ runId, workflow, name, key, kind, attempt }: CarriedStep): Named {
  return {
    name: `${kind === "undo" ? "undo" : "step"} ${name}`,
    "lockstep.run_id": runId,
    "lockstep.workflow": workflow,
    "lockstep.step": key,
    "lockstep.attempt": attempt,
  };
}

const tracer = () => trace.getTracer("lockstep");

/** What the body does has the span as its parent. */
function spanned<T>(
  { name, ...attributes }: Named,
  body: () => Promise<T>,
  done: (result: T, span: Span) => void,
): Promise<T> {
  return tracer().startActiveSpan(name, { attributes }, async (span) => {
    try {
      const result = await body();
      done(result, span);
      return result;
    } catch (thrown) {
      const { outcome, error } = endingOf(thrown);
      span.setAttribute("lockstep.outcome", outcome);
      if (error !== undefined) fail(span, toErrorInfo(error));
      throw thrown;
    } finally {
      span.end();
    }
  });
}

/** Written when the wait and the hold are over: so nothing is kept of a lock that is never given back. */
function spanOfLock(event: LockEvent): void {
  const { type } = event;
  if ("waited" in event) afterwards("lock wait", event.waited, event, type);
  else if ("held" in event)
    afterwards("lock hold", event.held, event, "answer" in event ? event.answer : "failed");
  else if (type !== "renewed") mention(event);
}

/** In the span of whatever the lock was taken for. */
function mention(event: Extract<LockEvent, { readonly type: "lost" | "renewal-failed" }>): void {
  const span = trace.getActiveSpan();
  if (!span?.isRecording()) return;
  const more = event.type === "lost" ? { "lockstep.reason": event.why } : described(event.error);
  span.addEvent(`lock ${event.type}`, { ...ofLock(event), ...more });
}

function afterwards(name: string, span: number, event: LockEvent, outcome: string): void {
  const attributes = { ...ofLock(event), "lockstep.outcome": outcome };
  const written = tracer().startSpan(name, { attributes, startTime: Date.now() - span });
  if ("error" in event) fail(written, toErrorInfo(event.error));
  written.end();
}

function ofLock({ names, fences }: LockEvent): Attributes {
  const fence = fences && { "lockstep.fence": fences.join(" ") };
  return { "lockstep.lock": names.join(" "), ...fence };
}

/** With neither stack nor cause: those may hold what was worked on. */
function fail(span: Span, { name, message: text, code }: ErrorInfo): void {
  const message = redact(text);
  span.recordException({ name, message, ...(code !== undefined && { code }) });
  span.setStatus({ code: SpanStatusCode.ERROR, message });
}

function described(error: unknown): Attributes {
  const { name, message, code } = toErrorInfo(error);
  return { "exception.type": code ?? name, "exception.message": redact(message) };
}
