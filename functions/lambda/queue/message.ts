import type { SQSEvent, SQSRecord } from "aws-lambda";
import type { Millis } from "../../../core/lock/time.ts";
import { TerminalError } from "../../../core/steps/errors.ts";
import { isInexact } from "../../json/inexact.ts";

/** Of a message whose body the handler cannot use. */
export function invalidMessage(problem: string): TerminalError {
  return new TerminalError("INVALID_MESSAGE", `the message is not valid: ${problem}`);
}

/** Parses the body as JSON. Throws INVALID_MESSAGE, which does not show the body. */
export function bodyOf({ body }: SQSRecord): unknown {
  try {
    return JSON.parse(body, (_, value) => checkExact(value));
  } catch (error) {
    // Without a cause: the message of a SyntaxError shows a part of the body.
    throw error instanceof TerminalError ? error : invalidMessage("the body is not JSON");
  }
}

function checkExact(value: unknown): unknown {
  if (!isInexact(value)) return value;
  throw invalidMessage("the body has a number above 2^53 - 1; send it as a string");
}

/** Throws a TypeError for an event of another source than SQS. */
export function recordsOf(event: SQSEvent): readonly SQSRecord[] {
  if (Array.isArray(event?.Records) && event.Records.every(isOfQueue)) return event.Records;
  throw new TypeError("the event is not from SQS; check the function's event source");
}

/** Records of Kinesis and of DynamoDB's streams have an ARN, too. */
function isOfQueue(record: Partial<SQSRecord> | null): boolean {
  return /^arn:[\w-]+:sqs:/.test(record?.eventSourceARN ?? "");
}

/** Judges by the queue's name. Messages of standard queues may have a MessageGroupId too, for fair queueing. */
export function isFifo({ eventSourceARN }: SQSRecord): boolean {
  return eventSourceARN.endsWith(".fifo");
}

export function groupIdOf({ attributes, messageId }: SQSRecord): string {
  return attributes.MessageGroupId ?? messageId;
}

/** Returns the number of deliveries, including this one. */
export function receiveCountOf({ attributes }: SQSRecord): number {
  return Number(attributes.ApproximateReceiveCount) || 1;
}

/** Returns the time since the message was sent. */
export function ageOf({ attributes }: SQSRecord): Millis {
  return Math.max(0, Date.now() - Number(attributes.SentTimestamp)) || 0;
}
