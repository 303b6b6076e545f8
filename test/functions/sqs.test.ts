import { beforeAll, describe, expect, test, vi } from "vitest";
import { sqs } from "../../functions/lambda/index.ts";
import { Queue } from "../support/lambda-host/queue.ts";
import { sqsEndpoint } from "../support/lambda-host/sqs-endpoint.ts";
import { useVirtualClock } from "../support/timers.ts";

const bodies = (records: readonly { readonly body: string }[]) => records.map(({ body }) => body);

describe("the queue of the Lambda host", () => {
  useVirtualClock();

  test("redelivers messages that were not deleted in time, and counts the deliveries", () => {
    const queue = new Queue({ name: "q", visibility: 1, second: 50 });
    queue.send("1");
    queue.send("2");
    const [first, second] = queue.receive(10);
    expect(queue.receive(10)).toEqual([]);
    queue.delete(first?.receiptHandle ?? "");
    vi.advanceTimersByTime(60);
    const again = queue.receive(10);
    expect(bodies(again)).toEqual(["2"]);
    expect(again[0]).toMatchObject({
      messageId: second?.messageId,
      attributes: { ApproximateReceiveCount: "2" },
    });
    // Only the last delivery can delete.
    queue.delete(second?.receiptHandle ?? "");
    expect(queue.messages).toHaveLength(1);
    queue.delete(again[0]?.receiptHandle ?? "");
    expect(queue.messages).toEqual([]);
  });

  test("refuses to delete a visible message of a FIFO queue, and to delay a visible message", () => {
    for (const [name, left] of [
      ["q.fifo", 1],
      ["q", 0],
    ] as const) {
      const queue = new Queue({ name, visibility: 1, second: 20 });
      queue.send("1", { group: "a" });
      const [record] = queue.receive(1);
      vi.advanceTimersByTime(40);
      expect(queue.changeVisibility(record?.receiptHandle ?? "", 10)).toBe(false);
      queue.delete(record?.receiptHandle ?? "");
      expect(queue.messages).toHaveLength(left);
    }
  });

  test("refuses a message without a group on a FIFO queue", () => {
    const queue = new Queue({ name: "q.fifo", visibility: 1 });
    expect(() => queue.send("1")).toThrow("MessageGroupId");
  });

  test("moves messages that were delivered too often", () => {
    const dead = new Queue({ name: "dead", visibility: 1 });
    const queue = new Queue({ name: "q", visibility: 0, redrive: { to: dead, after: 2 } });
    queue.send("1");
    expect([queue.receive(1), queue.receive(1), queue.receive(1)].map((one) => one.length)).toEqual(
      [1, 1, 0],
    );
    expect(dead.messages.map(({ body }) => body)).toEqual(["1"]);
  });

  test("holds back a FIFO group with a message in flight, and removes duplicates", () => {
    const queue = new Queue({ name: "q.fifo", visibility: 60 });
    for (const [body, group] of [
      ["a1", "a"],
      ["b1", "b"],
      ["a2", "a"],
      ["b2", "b"],
    ] as const) {
      queue.send(body, { group, dedupe: body });
    }
    queue.send("a1", { group: "a", dedupe: "a1" });
    const [first] = queue.receive(1);
    expect(first?.body).toBe("a1");
    const rest = queue.receive(10);
    expect(bodies(rest)).toEqual(["b1", "b2"]);
    queue.delete(first?.receiptHandle ?? "");
    expect(bodies(queue.receive(10))).toEqual(["a2"]);
    // One of the group that is invisible keeps the others back, even when it is the later one.
    queue.changeVisibility(rest[0]?.receiptHandle ?? "", 0);
    expect(bodies(queue.receive(10))).toEqual([]);
    queue.changeVisibility(rest[1]?.receiptHandle ?? "", 0);
    expect(bodies(queue.receive(10))).toEqual(["b1", "b2"]);
  });
});

describe("sqs()", () => {
  beforeAll(() => {
    vi.stubEnv("AWS_ACCESS_KEY_ID", "test");
    vi.stubEnv("AWS_SECRET_ACCESS_KEY", "test");
    return () => vi.unstubAllEnvs();
  });

  test("delays ten messages per request, and rejects when SQS refuses", async () => {
    const queue = new Queue({ name: "q", visibility: 60 });
    for (let i = 0; i < 25; i += 1) queue.send(`${i}`);
    await using endpoint = await sqsEndpoint(queue);
    const { delay } = sqs({ endpoint: endpoint.url });
    const records = queue.receive(25);
    await delay(records, 0);
    expect(queue.receive(25)).toHaveLength(25);
    await expect(delay(records, 0)).rejects.toThrow("25 of 25 messages");
  });

  test("delays the other messages when one has been redelivered", async () => {
    const queue = new Queue({ name: "q", visibility: 60 });
    for (let i = 0; i < 25; i += 1) queue.send(`${i}`);
    await using endpoint = await sqsEndpoint(queue);
    const { delay } = sqs({ endpoint: endpoint.url });
    const records = queue.receive(25);
    queue.delete(records[0]?.receiptHandle ?? "");
    await expect(delay(records, 0)).rejects.toThrow("1 of 25 messages");
    expect(queue.receive(25)).toHaveLength(24);
  });

  test("forwards a message once, with its group", async () => {
    const from = new Queue({ name: "q.fifo", visibility: 60 });
    const to = new Queue({ name: "poison.fifo", visibility: 60 });
    from.send("text", { group: "a" });
    await using endpoint = await sqsEndpoint(from, to);
    const [record] = from.receive(1);
    if (!record) throw new Error("nothing was delivered");
    const { forward } = sqs({ endpoint: endpoint.url });
    for (let i = 0; i < 2; i += 1) await forward(to.arn, record, { code: "INVALID" });
    expect(to.messages).toMatchObject([
      { body: "text", group: "a", attributes: { code: "INVALID" } },
    ]);
    const elsewhere = to.arn.replace("poison", "nothing");
    await expect(forward(elsewhere, record)).rejects.toThrow("400");
  });

  test("forwards a message with its trace", async () => {
    const from = new Queue({ name: "q", visibility: 60 });
    const to = new Queue({ name: "poison", visibility: 60 });
    const trace = "Root=1-5759e988-bd862e3fe1be46a994272793;Sampled=1";
    from.send("text", { trace, attributes: { traceparent: "00-1-2-01" } });
    await using endpoint = await sqsEndpoint(from, to);
    const { forward } = sqs({ endpoint: endpoint.url });
    for (const record of from.receive(1)) await forward(to.arn, record);
    expect(to.messages).toMatchObject([{ trace, attributes: { traceparent: "00-1-2-01" } }]);
  });

  test("forwards a message with its attributes, up to the limit of SQS", async () => {
    const from = new Queue({ name: "q", visibility: 60 });
    const to = new Queue({ name: "poison", visibility: 60 });
    const ten = Object.fromEntries(Array.from({ length: 10 }, (_, i) => [`name${i}`, `${i}`]));
    from.send("one", { attributes: { tenant: "a", code: "OLD" } });
    from.send("two", { attributes: ten });
    await using endpoint = await sqsEndpoint(from, to);
    const { forward } = sqs({ endpoint: endpoint.url });
    for (const record of from.receive(2)) {
      await forward(to.arn, record, { code: "INVALID", more: "b" });
    }
    expect(to.messages.map(({ attributes }) => attributes)).toEqual([
      { tenant: "a", code: "INVALID", more: "b" },
      ten,
    ]);
  });
});
