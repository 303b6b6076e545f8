import { randomUUID } from "node:crypto";
import type { SQSRecord } from "aws-lambda";

export interface QueueOptions {
  /** The name of a FIFO queue ends in ".fifo". */
  readonly name: string;

  /** How long a delivered message stays invisible, in seconds of the queue. */
  readonly visibility: number;

  /** How long a second of the queue lasts, in milliseconds. Default 1,000. */
  readonly second?: number;

  /** The queue for messages that were delivered too often. */
  readonly redrive?: { readonly to: Queue; readonly after: number };
}

interface Message {
  readonly id: string;
  readonly body: string;
  readonly group: string | undefined;
  readonly sentAt: number;

  /** The trace header of X-Ray. */
  readonly trace: string | undefined;
  readonly attributes: Readonly<Record<string, string>>;
  receives: number;
  visibleAt: number;

  /** The handle of the last delivery; earlier handles have no effect. */
  receipt: string;
}

interface Sending {
  readonly group?: string | undefined;
  readonly dedupe?: string | undefined;
  readonly trace?: string | undefined;
  readonly attributes?: Readonly<Record<string, string>>;
}

/** A queue as SQS keeps it: a delivered message is invisible for a while, and is redelivered unless it is deleted. */
export class Queue {
  readonly name: string;
  readonly #options: QueueOptions;
  #messages: Message[] = [];
  readonly #deduped = new Set<string>();

  constructor(options: QueueOptions) {
    this.name = options.name;
    this.#options = options;
  }

  get arn(): string {
    return `arn:aws:sqs:eu-central-1:000000000000:${this.name}`;
  }

  get isFifo(): boolean {
    return this.name.endsWith(".fifo");
  }

  /** The messages in their order, delivered or not. */
  get messages(): readonly Message[] {
    return this.#messages;
  }

  send(body: unknown, { group, dedupe, trace, attributes = {} }: Sending = {}): void {
    if (this.isFifo && group === undefined) throw new Error("MissingParameter: MessageGroupId");
    if (dedupe !== undefined && this.#deduped.has(dedupe)) return;
    if (dedupe !== undefined) this.#deduped.add(dedupe);
    const now = Date.now();
    const text = typeof body === "string" ? body : JSON.stringify(body);
    const fresh = { id: randomUUID(), receives: 0, receipt: "" };
    const sending = { body: text, group, trace, attributes };
    this.#messages.push({ ...fresh, ...sending, sentAt: now, visibleAt: now });
  }

  /**
   * Delivers up to `most` messages. `twice` chooses messages that stay visible and are delivered to another consumer too,
   * as happens in standard queues.
   */
  receive(most: number, twice: () => boolean = () => false): readonly SQSRecord[] {
    const now = Date.now();
    const inFlight = this.#messages.filter(({ visibleAt }) => visibleAt > now);
    const blocked = new Set(this.isFifo ? inFlight.map(({ group }) => group) : []);
    const isFree = ({ visibleAt, group }: Message) => visibleAt <= now && !blocked.has(group);
    this.#redrive(isFree);
    const taken = this.#messages.filter(isFree).slice(0, most);
    return taken.map((message) => {
      message.receives += 1;
      message.receipt = randomUUID();
      const again = !this.isFifo && twice();
      if (!again) message.visibleAt = now + this.#millis(this.#options.visibility);
      return this.#toRecord(message);
    });
  }

  /** Has no effect after the message was redelivered or, in a FIFO queue, is visible again. */
  delete(receipt: string): void {
    if (this.isFifo && !this.#inFlight(receipt)) return;
    this.#messages = this.#messages.filter((message) => message.receipt !== receipt);
  }

  /** False: the message is visible, was redelivered, or was deleted. */
  changeVisibility(receipt: string, seconds: number): boolean {
    const message = this.#inFlight(receipt);
    if (!message) return false;
    message.visibleAt = Date.now() + this.#millis(seconds);
    return true;
  }

  #inFlight(receipt: string): Message | undefined {
    const now = Date.now();
    return this.#messages.find((one) => one.receipt === receipt && one.visibleAt > now);
  }

  #redrive(isFree: (message: Message) => boolean): void {
    const { redrive } = this.#options;
    if (!redrive) return;
    const isOver = (message: Message) => isFree(message) && message.receives >= redrive.after;
    for (const { body, group, trace, attributes } of this.#messages.filter(isOver)) {
      redrive.to.send(body, { group, trace, attributes });
    }
    this.#messages = this.#messages.filter((message) => !isOver(message));
  }

  #millis(seconds: number): number {
    return seconds * (this.#options.second ?? 1_000);
  }

  #toRecord({ id, body, receipt, receives, sentAt, group, trace, attributes }: Message): SQSRecord {
    return {
      messageId: id,
      receiptHandle: receipt,
      body,
      attributes: {
        ApproximateReceiveCount: String(receives),
        SentTimestamp: String(sentAt),
        SenderId: "test",
        ApproximateFirstReceiveTimestamp: String(sentAt),
        ...(group && { MessageGroupId: group }),
        ...(trace && { AWSTraceHeader: trace }),
      },
      messageAttributes: Object.fromEntries(
        Object.entries(attributes).map(([name, stringValue]) => [
          name,
          { stringValue, dataType: "String" },
        ]),
      ),
      md5OfBody: "",
      eventSource: "aws:sqs",
      eventSourceARN: this.arn,
      awsRegion: "eu-central-1",
    };
  }
}
