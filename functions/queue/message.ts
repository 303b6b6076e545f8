import type { SQSEvent, SQSRecord } from "aws-lambda";
import { TerminalError } from "../../core/steps/errors.ts";
import { isInexact } from "../inexact.ts";

/** A message whose body is not what its handler takes. */
export class InvalidMessageError extends TerminalError {
  constructor(problem: string, cause?: unknown) {
    super("INVALID_MESSAGE", `the message is not valid: ${problem}`, { cause });
  }
}

/** The body as JSON. Throws an InvalidMessageError, which does not show the body. */
export function bodyOf({ body }: SQSRecord): unknown {
  try {
    return JSON.parse(body, (_, value) => checkExact(value));
  } catch (error) {
    if (error instanceof InvalidMessageError) throw error;
    throw new InvalidMessageError("its body is no JSON", error);
  }
}

function checkExact(value: unknown): unknown {
  if (!isInexact(value)) return value;
  throw new InvalidMessageError(
    "it has a number that is larger than 2^53 - 1, which is to be a text",
  );
}

/** Throws a TypeError for an event that is not of SQS: the function hangs on the wrong source. */
export function recordsOf(event: SQSEvent): readonly SQSRecord[] {
  if (!Array.isArray(event?.Records)) throw new TypeError("the event is none of SQS");
  return event.Records;
}

/** Not by MessageGroupId: messages of standard queues may have one too, for fairness alone. */
export function isFifo({ eventSourceARN }: SQSRecord): boolean {
  return eventSourceARN.endsWith(".fifo");
}

export function groupOf({ attributes, messageId }: SQSRecord): string {
  return attributes.MessageGroupId ?? messageId;
}

/** How often it was delivered, this time included. */
export function receivesOf({ attributes }: SQSRecord): number {
  return Number(attributes.ApproximateReceiveCount) || 1;
}
