import type { SQSRecord } from "aws-lambda";
import { openTelemetryIfRegistered } from "../../telemetry/if-registered.ts";

/** Continues the trace of a message's sender, which the message's attribute `traceparent` names. */
export async function inTraceOf<T>(
  { messageAttributes }: SQSRecord,
  work: () => Promise<T>,
): Promise<T> {
  const otel = await openTelemetryIfRegistered();
  if (!otel) return work();
  const texts = Object.entries(messageAttributes ?? {}).map(
    ([name, { stringValue = "" }]) => [name, stringValue] as const,
  );
  return otel.continueTrace(new Map(texts), work);
}
