import { once } from "node:events";
import { createServer, type IncomingMessage } from "node:http";
import type { AddressInfo } from "node:net";
import { text } from "node:stream/consumers";
import type { Queue } from "./queue.ts";

interface Entry {
  readonly Id: string;
  readonly ReceiptHandle: string;
  readonly VisibilityTimeout: number;
}

export interface SqsEndpoint extends AsyncDisposable {
  /** The value of AWS_ENDPOINT_URL_SQS. */
  readonly url: string;
}

/** The calls of SQS that handlers make, over real HTTP. Refuses unsigned requests. */
export async function sqsEndpoint(...queues: readonly Queue[]): Promise<SqsEndpoint> {
  const server = createServer(async (request, response) => {
    const { status, body } = await answer(queues, request).catch((error: Error) => ({
      status: 400,
      body: { message: error.message },
    }));
    response.writeHead(status, { "content-type": "application/x-amz-json-1.0" });
    response.end(JSON.stringify(body));
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const close = async () => {
    server.close();
    server.closeAllConnections();
  };
  const { port } = server.address() as AddressInfo;
  return { url: `http://127.0.0.1:${port}`, [Symbol.asyncDispose]: close };
}

async function answer(queues: readonly Queue[], request: IncomingMessage) {
  const { authorization = "", "x-amz-target": target } = request.headers;
  if (!/^AWS4-HMAC-SHA256 .*\/eu-central-1\/sqs\/.*Signature=[0-9a-f]{64}$/.test(authorization)) {
    return { status: 403, body: { message: "not signed" } };
  }
  const call = JSON.parse(await text(request));
  const queue = queues.find(({ name }) => call.QueueUrl.endsWith(`/000000000000/${name}`));
  if (!queue) return { status: 400, body: { message: "there is no such queue" } };
  if (target === "AmazonSQS.ChangeMessageVisibilityBatch") {
    const entries: readonly Entry[] = call.Entries;
    checkBatch(entries);
    const isChanged = ({ ReceiptHandle, VisibilityTimeout }: Entry) =>
      queue.changeVisibility(ReceiptHandle, VisibilityTimeout);
    const Failed = entries.filter((entry) => !isChanged(entry)).map(({ Id }) => ({ Id }));
    return { status: 200, body: { Successful: [], Failed } };
  }
  if (target === "AmazonSQS.SendMessage") {
    const { MessageBody, MessageGroupId, MessageDeduplicationId, MessageAttributes = {} } = call;
    const named = Object.entries<{ StringValue: string }>(MessageAttributes);
    const attributes = Object.fromEntries(named.map(([name, value]) => [name, value.StringValue]));
    const header = call.MessageSystemAttributes?.AWSTraceHeader?.StringValue;
    queue.send(MessageBody, {
      group: MessageGroupId,
      dedupe: MessageDeduplicationId,
      trace: header,
      attributes,
    });
    return { status: 200, body: { MessageId: "" } };
  }
  return { status: 400, body: { message: `there is no ${target} here` } };
}

function checkBatch(entries: readonly Entry[]): void {
  if (entries.length === 0) throw new Error("EmptyBatchRequest");
  if (entries.length > 10) throw new Error("TooManyEntriesInBatchRequest");
  if (new Set(entries.map(({ Id }) => Id)).size < entries.length) {
    throw new Error("BatchEntryIdsNotDistinct");
  }
  const isSpan = (seconds: number) =>
    Number.isInteger(seconds) && seconds >= 0 && seconds <= 43_200;
  if (!entries.every((entry) => isSpan(entry.VisibilityTimeout))) {
    throw new Error("InvalidParameterValue: VisibilityTimeout");
  }
}
