import type { SQSRecord } from "aws-lambda";
import { checkOptionNames, type OptionNames } from "../../../core/lock/options.ts";
import { mapConcurrent } from "../../invocation/map-concurrent.ts";
import { callAws, parseArn } from "../aws-call.ts";

export interface SqsOptions {
  /** Default: AWS_ENDPOINT_URL_SQS, else the endpoint of the queue's region. */
  readonly endpoint?: string;
}

export interface Sqs {
  /**
   * Makes messages visible again after `seconds`, 0 to 43,200: for the option `delay` of the handlers. Rejects with an
   * AggregateError when SQS did not delay some of the messages; the others are delayed.
   */
  delay(records: readonly SQSRecord[], seconds: number): Promise<void>;

  /**
   * Sends a message to another queue, with its own attributes and `attributes`: for the option `poison`. The message
   * keeps its trace of X-Ray and, on a FIFO queue, its group. SQS takes ten attributes per message; the message's own
   * come first.
   */
  forward(
    queueArn: string,
    record: SQSRecord,
    attributes?: Readonly<Record<string, string>>,
  ): Promise<void>;
}

const OPTIONS = { endpoint: true } satisfies OptionNames<SqsOptions>;

/** Returns a client for the two calls of SQS that the handlers use. */
export function sqs(options: SqsOptions = {}): Sqs {
  checkOptionNames("sqs", options, OPTIONS);
  const { endpoint } = options;
  return {
    async delay(records, seconds) {
      const errors: unknown[] = [];
      const delayPage = async (from: number) => {
        const page = records.slice(from, from + MAX_ENTRIES);
        errors.push(...(await changeVisibility(page, seconds, endpoint)));
      };
      const pages = Array.from({ length: Math.ceil(records.length / MAX_ENTRIES) }, (_, i) => i);
      await mapConcurrent(pages, MAX_CALLS, (i) => delayPage(i * MAX_ENTRIES));
      if (errors.length === 0) return;
      const message = `SQS did not delay ${errors.length} of ${records.length} messages`;
      throw new AggregateError(errors, message, { cause: errors[0] });
    },
    async forward(queueArn, record, attributes = {}) {
      const { MessageGroupId = record.messageId, AWSTraceHeader } = record.attributes;
      const fifo = { MessageGroupId, MessageDeduplicationId: record.messageId };
      const call = callerOf(queueArn, endpoint);
      await call("SendMessage", {
        MessageBody: record.body,
        MessageAttributes: attributesOf(record, attributes),
        ...(AWSTraceHeader !== undefined && {
          MessageSystemAttributes: {
            AWSTraceHeader: { DataType: "String", StringValue: AWSTraceHeader },
          },
        }),
        ...(queueArn.endsWith(".fifo") && fifo),
      });
    },
  };
}

/** The most entries that SQS takes in one request. */
const MAX_ENTRIES = 10;

/** Concurrent requests. Delays are sent near the end of an invocation. */
const MAX_CALLS = 10;

/** Returns an error for each message that is not delayed: redelivered meanwhile, or SQS did not answer. */
async function changeVisibility(
  records: readonly SQSRecord[],
  seconds: number,
  endpoint: string | undefined,
): Promise<readonly unknown[]> {
  const Entries = records.map(({ receiptHandle }, i) => ({
    Id: String(i),
    ReceiptHandle: receiptHandle,
    VisibilityTimeout: seconds,
  }));
  const call = callerOf(records[0]?.eventSourceARN ?? "", endpoint);
  try {
    return (await call("ChangeMessageVisibilityBatch", { Entries })).Failed ?? [];
  } catch (error) {
    return records.map(() => error);
  }
}

interface SqsResponse {
  readonly Failed?: readonly unknown[];
}

function callerOf(queueArn: string, own = process.env.AWS_ENDPOINT_URL_SQS) {
  const { region, account, name, host } = parseArn(queueArn);
  const endpoint = own ?? `https://${host}`;
  const QueueUrl = `${endpoint}/${account}/${name}`;
  const common = { service: "sqs", region, endpoint, version: "1.0" } as const;
  return (action: string, body: object) =>
    callAws<SqsResponse>({
      ...common,
      target: `AmazonSQS.${action}`,
      body: { QueueUrl, ...body },
    });
}

/** The most attributes of a message. */
const MAX_ATTRIBUTES = 10;

/** Merges the message's own attributes with `more`, up to the limit of SQS. */
function attributesOf({ messageAttributes }: SQSRecord, more: Readonly<Record<string, string>>) {
  const own = Object.entries(messageAttributes).map(
    ([name, { dataType: DataType, stringValue: StringValue, binaryValue: BinaryValue }]) =>
      [name, { DataType, StringValue, BinaryValue }] as const,
  );
  const added = Object.entries(more).map(
    ([name, StringValue]) => [name, { DataType: "String", StringValue }] as const,
  );
  const all = Object.entries(Object.fromEntries([...own, ...added]));
  return Object.fromEntries(all.slice(0, MAX_ATTRIBUTES));
}
