import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { open } from "../../infra/open.ts";
import { bundledHandlers } from "../support/lambda-host/bundled.ts";
import { EventSource } from "../support/lambda-host/event-source.ts";
import { LambdaFunction } from "../support/lambda-host/function.ts";
import { Queue } from "../support/lambda-host/queue.ts";
import { sqsEndpoint } from "../support/lambda-host/sqs-endpoint.ts";
import { pause, until } from "../support/until.ts";

let bundled: Awaited<ReturnType<typeof bundledHandlers>>;

beforeAll(async () => {
  bundled = await bundledHandlers();
});

afterAll(() => bundled[Symbol.asyncDispose]());

/** A queue whose seconds last 50 ms, and a function that handles its messages. */
async function system(
  name: string,
  { environments = 3, timeout = 10_000, lease = 10_000, redriveAfter = 1_000 } = {},
) {
  const second = 50;
  const home = await mkdtemp(join(tmpdir(), "lockstep-queue-"));
  const [url, lines] = [`sqlite:${join(home, "runs.db")}`, join(home, "lines")];
  await writeFile(lines, "");
  const [poison, dead] = [
    new Queue({ name: `poison-${name}`, visibility: 60 }),
    new Queue({ name: "dead", visibility: 60 }),
  ];
  const visibility = (1.2 * timeout) / second;
  const queue = new Queue({ name, visibility, second, redrive: { to: dead, after: redriveAfter } });
  const endpoint = await sqsEndpoint(queue, poison);
  const fn = new LambdaFunction({
    module: join(bundled.folder, "index.js"),
    handler: "orders",
    timeout,
    concurrency: environments,
    env: {
      LOCKSTEP_STORE: url,
      LINES: lines,
      LEASE: String(lease),
      POISON: poison.arn,
      AWS_ENDPOINT_URL_SQS: endpoint.url,
    },
  });
  const opened = await open(url);
  return {
    queue,
    poison,
    dead,
    opened,
    begin: (options: { twice?: () => boolean } = {}) =>
      new EventSource({ queue, function: fn, ...options }),
    written: async () => (await readFile(lines, "utf8")).split("\n").filter(Boolean),
    async [Symbol.asyncDispose]() {
      await fn[Symbol.asyncDispose]();
      await endpoint[Symbol.asyncDispose]();
      await opened.close();
      await rm(home, { recursive: true, force: true });
    },
  };
}

describe.concurrent("queueHandler on the Lambda host", () => {
  test("executes each order once, also when delivered twice, and hands poison over", async () => {
    await using sys = await system("orders");
    const ids = Array.from({ length: 40 }, (_, i) => `order-${i}`);
    for (const orderId of ids) sys.queue.send({ orderId, sku: orderId.slice(-1) });
    for (const body of ["{", { orderId: "poison-1", sku: "a" }, { sku: "a" }]) sys.queue.send(body);
    await using _ = sys.begin({ twice: () => Math.random() < 0.2 });
    await until(() => sys.queue.messages.length === 0, 200_000);
    expect((await sys.written()).sort()).toEqual(ids.sort());
    const codes = new Set(sys.poison.messages.map(({ attributes }) => attributes.code));
    expect([...codes].sort()).toEqual(["INVALID", "INVALID_MESSAGE", "POISON"]);
    expect(sys.dead.messages).toEqual([]);
  });

  test("moves no message to the dead-letter queue because of contention, however long it lasts", async () => {
    // Deliveries every second would take 60.
    await using sys = await system("busy", { redriveAfter: 30 });
    for (let i = 0; i < 10; i += 1) sys.queue.send({ orderId: `order-${i}`, sku: "hot" });
    const held = await sys.opened.locks.lock("sku/hot", { ttl: 60_000, wait: 60_000 });
    await using _ = sys.begin();
    // 60 of the queue's seconds.
    await pause(3_000);
    expect(await sys.written()).toEqual([]);
    await held.unlock();
    await until(() => sys.queue.messages.length === 0, 200_000);
    expect(await sys.written()).toHaveLength(10);
    expect([...sys.dead.messages, ...sys.poison.messages]).toEqual([]);
  });

  test("keeps the order of each FIFO group across kills, and groups do not wait for each other", async () => {
    await using sys = await system("orders.fifo", { timeout: 6_000, lease: 3_000 });
    const groups = ["a", "b", "c"];
    const ids = Array.from({ length: 6 }, (_, i) =>
      groups.map((group) => ({ group, id: `${group}${i}` })),
    );
    for (const { group, id } of ids.flat()) {
      const orderId = id === "a2" ? "hang-a2" : id;
      sys.queue.send({ orderId, sku: group }, { group });
    }
    await using _ = sys.begin();
    await until(() => sys.queue.messages.length === 0, 200_000);
    const lines = await sys.written();
    for (const group of groups) {
      const own = lines
        .map((line) => line.replace("hang-", ""))
        .filter((line) => line.startsWith(group))
        // A step that is killed between its effect and its row in the journal is done again, before the next order.
        .filter((line, i, all) => line !== all[i - 1]);
      expect(own).toEqual([0, 1, 2, 3, 4, 5].map((i) => `${group}${i}`));
    }
    expect(sys.dead.messages).toEqual([]);
    // The step that was begun and never ended has failed, once it is known.
    expect(sys.poison.messages.map(({ attributes }) => attributes.code)).toEqual([
      "STEP_INTERRUPTED",
    ]);
  });
});
