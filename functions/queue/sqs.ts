import type { SQSRecord } from "aws-lambda";
import { callAws, parseArn } from "../lambda/aws-call.ts";
import { someAtATime } from "../lambda/some-at-a-time.ts";

export interface SqsOptions {
  /** Default: AWS_ENDPOINT_URL_SQS, or that of the queue's region. */
  readonly endpoint?: string;
}

export interface Sqs {
  /**
   * Makes messages visible again after so many seconds, 0 to 43,200: the option `delay` of the handlers. Rejects with
   * an AggregateError where some of them are not; the others are.
   */
  delay(records: readonly SQSRecord[], seconds: number): Promise<void>;

  /**
   * Sends a message on to another queue, with its attributes and these besides, and in its group where that is a FIFO
   * queue: for the option `poison`. A message has ten attributes at the most, and keeps its own.
   */
  forward(
    queueArn: string,
    record: SQSRecord,
    attributes?: Readonly<Record<string, string>>,
  ): Promise<void>;
}

/** The two calls of SQS that the handlers have a use for. */
export function sqs({ endpoint }: SqsOptions = {}): Sqs {
  return {
    async delay(records, seconds) {
      const problems: unknown[] = [];
      const delayTen = async (from: number) => {
        const ten = records.slice(from, from + MOST_ENTRIES);
        problems.push(...(await delaySome(ten, seconds, endpoint)));
      };
      const tens = Array.from({ length: Math.ceil(records.length / MOST_ENTRIES) }, (_, i) => i);
      await someAtATime(tens, MOST_CALLS, (i) => delayTen(i * MOST_ENTRIES));
      if (problems.length === 0) return;
      const said = `SQS did not delay ${problems.length} of ${records.length} messages`;
      throw new AggregateError(problems, said);
    },
    async forward(queueArn, record, attributes = {}) {
      const { MessageGroupId = record.messageId } = record.attributes;
      const fifo = { MessageGroupId, MessageDeduplicationId: record.messageId };
      const call = callOf(queueArn, endpoint);
      await call("SendMessage", {
        MessageBody: record.body,
        MessageAttributes: attributesOf(record, attributes),
        ...(queueArn.endsWith(".fifo") && fifo),
      });
    },
  };
}

/** The most entries in one request. */
const MOST_ENTRIES = 10;

/** How many requests at a time: the end of an invocation is near. */
const MOST_CALLS = 10;

/** What is wrong, for each message that is not delayed: it was delivered again since, or SQS does not answer. */
async function delaySome(
  records: readonly SQSRecord[],
  seconds: number,
  endpoint: string | undefined,
): Promise<readonly unknown[]> {
  const Entries = records.map(({ receiptHandle }, i) => ({
    Id: String(i),
    ReceiptHandle: receiptHandle,
    VisibilityTimeout: seconds,
  }));
  const call = callOf(records[0]?.eventSourceARN ?? "", endpoint);
  try {
    return (await call("ChangeMessageVisibilityBatch", { Entries })).Failed ?? [];
  } catch (error) {
    return records.map(() => error);
  }
}

interface Reply {
  readonly Failed?: readonly unknown[];
}

function callOf(queueArn: string, own = process.env.AWS_ENDPOINT_URL_SQS) {
  const { region, account, name, host } = parseArn(queueArn);
  const endpoint = own ?? `https://${host}`;
  const QueueUrl = `${endpoint}/${account}/${name}`;
  const about = { service: "sqs", region, endpoint, version: "1.0" } as const;
  return (action: string, body: object) =>
    callAws<Reply>({ ...about, target: `AmazonSQS.${action}`, body: { QueueUrl, ...body } });
}

/** The most attributes of a message. */
const MOST_ATTRIBUTES = 10;

/** Those that a message came with, and these besides as far as there is room. */
function attributesOf({ messageAttributes }: SQSRecord, more: Readonly<Record<string, string>>) {
  const own = Object.entries(messageAttributes).map(
    ([name, { dataType: DataType, stringValue: StringValue, binaryValue: BinaryValue }]) =>
      [name, { DataType, StringValue, BinaryValue }] as const,
  );
  const others = Object.entries(more).map(
    ([name, StringValue]) => [name, { DataType: "String", StringValue }] as const,
  );
  const all = Object.entries(Object.fromEntries([...own, ...others]));
  return Object.fromEntries(all.slice(0, MOST_ATTRIBUTES));
}
