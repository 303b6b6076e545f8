import { mkdtemp, open as openFile, readdir, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { LOCK_TTL } from "../../functions/aws/stock.ts";
import { SELL_BUDGET } from "../../functions/aws/workflows.ts";
import { MIN_WORK_TIME, reserveOf } from "../../functions/invocation/invocation.ts";
import { metricTelemetry } from "../../functions/telemetry/metrics.ts";
import { open } from "../../infra/open.ts";
import { CHECKS, sources } from "../support/deployment/checks.ts";
import { fromCloudFormation } from "../support/deployment/cloudformation.ts";
import { expectFaultsFound } from "../support/deployment/faults.ts";
import { CLIENTS } from "../support/lambda-host/clients.ts";
import type { FunctionOptions } from "../support/lambda-host/environment.ts";
import { EventSource } from "../support/lambda-host/event-source.ts";
import { LambdaFunction } from "../support/lambda-host/function.ts";
import { Queue } from "../support/lambda-host/queue.ts";
import { sqsEndpoint } from "../support/lambda-host/sqs-endpoint.ts";
import { cells, WHOLE_MATRIX } from "../support/matrix.ts";
import { type Packaged, packageAll } from "../support/packaged.ts";
import { until } from "../support/until.ts";

let packaged: Packaged;

beforeAll(async () => {
  packaged = await packageAll();
}, 180_000);

afterAll(() => packaged[Symbol.asyncDispose]());

const properties = (name: string) => packaged.template.Resources[name]?.Properties;

describe("the template", () => {
  test.each(Object.entries(CHECKS))("keeps to this: %s", (_, check) => {
    check(fromCloudFormation(packaged.template));
  });

  test("of other numbers, rights or alarms fails a check", () => {
    expectFaultsFound(fromCloudFormation(packaged.template));
  });

  test("keeps a lock for no longer than a message is invisible", () => {
    const all = sources(fromCloudFormation(packaged.template));
    const { queue } = all.find((one) => one.queue.id === "Sales") ?? {};
    expect(LOCK_TTL).toBeLessThanOrEqual((queue?.visibility ?? 0) * 1_000);
    for (const { queue, fn } of all) {
      // A lock of the ttl "invocation" outlasts the timeout by two seconds.
      expect(fn.timeout + 2).toBeLessThanOrEqual(queue.visibility);
    }
  });

  test("gives every function the time for one order and the reserve", () => {
    for (const name of ["Http", "Queue", "Sweep"]) {
      const millis = properties(`${name}LambdaFunction`).Timeout * 1_000;
      expect(SELL_BUDGET + MIN_WORK_TIME + reserveOf({})).toBeLessThan(millis / 2);
    }
    // An order may hold the lock for its ttl.
    const stock = properties("StockLambdaFunction").Timeout * 1_000;
    expect(LOCK_TTL + reserveOf({})).toBeLessThanOrEqual(stock);
  });

  test("has an alarm for a failed report, with the dimensions of its metric", () => {
    const { MetricName, Dimensions } = properties("ReportFails");
    const counted: unknown[] = [];
    const { runtime } = metricTelemetry((...measurement) => void counted.push(measurement));
    const run = { runId: "1", workflow: "stock-report" };
    runtime.onEvent?.({ ...run, type: "ended", status: "failed" });
    const own = Dimensions.slice(1).map((one: { Name: string; Value: string }) => [
      one.Name,
      one.Value,
    ]);
    expect(counted).toEqual([[MetricName, 1, Object.fromEntries(own)]]);
  });

  test("alarms at the first failure of a function that runs once a day", () => {
    expect(properties("ScheduleFails").EvaluationPeriods).toBe(1);
  });

  test("gives poison messages to the dead-letter queue of their queue", () => {
    for (const { queue, fn } of sources(fromCloudFormation(packaged.template))) {
      expect(fn.environment.LOCKSTEP_POISON_QUEUE).toBe(queue.redrive?.to);
    }
  });
});

test.runIf(WHOLE_MATRIX)(
  "the stage prod reserves no less than its queues may use",
  async () => {
    await using prod = await packageAll({ stage: "prod", bundled: true });
    const all = fromCloudFormation(prod.template);
    expect(all.functions.map(({ reserved = Infinity }) => reserved).reduce((a, b) => a + b)).toBe(
      72,
    );
    for (const { mapping, fn } of sources(all)) {
      expect(fn.reserved).toBeGreaterThanOrEqual(mapping.concurrency ?? Infinity);
    }
  },
  180_000,
);

describe("the zips", () => {
  test.runIf(WHOLE_MATRIX)(
    "have the same bytes in every build, and so has the template",
    async () => {
      await using again = await packageAll();
      expect(again.text).toBe(packaged.text);
      expect(Object.keys(packaged.zips)).toHaveLength(7);
      for (const [name, zip] of Object.entries(packaged.zips)) {
        expect(Buffer.from(zip).equals(again.zips[name] ?? Buffer.of()), name).toBe(true);
      }
    },
    180_000,
  );

  test("contain one function each, and nothing else", async () => {
    const functions = ["http", "migrate", "queue", "restock", "schedule", "stock", "sweep"];
    expect(Object.keys(packaged.zips).sort()).toEqual(functions);
    for (const name of functions) {
      const folder = join(packaged.unpacked, name);
      expect(await readdir(folder)).toEqual(["build"]);
      expect(await readdir(join(folder, "build"))).toEqual([name]);
      const files = await readdir(join(folder, "build", name));
      expect(files).toContain("index.js");
      expect(files.filter((file) => !/\.js(\.map)?$|^package\.json$/.test(file))).toEqual([]);
    }
  });

  test("contain the handlers that the template names", () => {
    for (const name of Object.keys(packaged.zips)) {
      const { Handler, Code } = properties(`${capital(name)}LambdaFunction`);
      expect(Handler).toBe(`build/${name}/index.handler`);
      expect(Code.S3Key).toMatch(new RegExp(`/${name}\\.zip$`));
    }
  });
});

const capital = (name: string) => name.slice(0, 1).toUpperCase() + name.slice(1);

describe.each(cells(Object.keys(CLIENTS)))(
  "the unzipped handlers on the Lambda host with %s",
  (client) => {
    let home: string;
    let url: string;

    beforeAll(async () => {
      home = await mkdtemp(join(tmpdir(), "lockstep-deployed-"));
      url = `sqlite:${join(home, "shop.db")}`;
      const { inventory, close } = await open(url);
      await inventory.set({ sku: "a", quantity: 10, operationId: "supply" });
      await close();
    });

    afterAll(() => rm(home, { recursive: true, force: true }));

    const deployed = (name: string, { env, log }: Pick<FunctionOptions, "env" | "log"> = {}) => {
      const module = join(packaged.unpacked, name, "build", name, "index.js");
      return new LambdaFunction({
        module,
        handler: "handler",
        timeout: 20_000,
        concurrency: 2,
        env: { LOCKSTEP_STORE: url, ...env },
        ...(log !== undefined && { log }),
        ...CLIENTS[client],
      });
    };

    const request = (
      method: string,
      path: string,
      headers: Record<string, string> = {},
      body?: object,
    ) => ({
      version: "2.0",
      rawPath: path,
      rawQueryString: "",
      headers,
      requestContext: { domainName: "shop.example", http: { method, path } },
      ...(body && { body: JSON.stringify(body) }),
      isBase64Encoded: false,
    });

    test("migrate the database", async () => {
      await using fn = deployed("migrate");
      expect(await fn.invoke({})).toEqual({ type: "response", result: { applied: [] } });
    });

    test("serve HTTP, and refuse a request without a token", async () => {
      await using fn = deployed("http", {
        env: { LOCKSTEP_TOKEN: "the-one-of-yesterday 0123456789abcdef" },
      });
      const get = (headers = {}) => fn.invoke(request("GET", "/stock/a", headers));
      expect(await get()).toMatchObject({ result: { statusCode: 401 } });
      expect(await get({ authorization: "Bearer 0123456789abcdef" })).toMatchObject({
        result: { statusCode: 200 },
      });
      await using closed = deployed("http");
      const refused = await closed.invoke(
        request("GET", "/stock/a", { authorization: "Bearer 0123456789abcdef" }),
      );
      expect(refused).toMatchObject({ result: { statusCode: 403 } });
      expect(await closed.invoke(request("GET", "/health"))).toMatchObject({
        result: { statusCode: 200 },
      });
    });

    test.each([
      ["queue", "orders"],
      ["stock", "sales"],
    ])("sell to the messages of a queue: %s", async (name, prefix) => {
      const queue = new Queue({ name: prefix, visibility: 60 });
      const poison = new Queue({ name: `${prefix}-dead`, visibility: 60 });
      await using endpoint = await sqsEndpoint(queue, poison);
      await using fn = deployed(name, {
        env: { LOCKSTEP_POISON_QUEUE: poison.arn, AWS_ENDPOINT_URL_SQS: endpoint.url },
      });
      for (let i = 0; i < 3; i += 1)
        queue.send({ orderId: `${prefix}-${i}`, sku: "a", quantity: 1 });
      queue.send("{");
      await using _ = new EventSource({ queue, function: fn });
      await until(() => queue.messages.length === 0);
      expect(poison.messages).toMatchObject([
        { body: "{", attributes: { code: "INVALID_MESSAGE" } },
      ]);
      const { inventory, close } = await open(url);
      const entries = await inventory.history("a");
      expect(entries.filter(({ operationId }) => operationId?.startsWith(prefix))).toHaveLength(3);
      await close();
    });

    test("add a delivery once, and refuse at once while another owner has the sku's lock", async () => {
      await using fn = deployed("restock");
      const add = () => fn.invoke({ deliveryId: "d1", sku: "b", quantity: 5 });
      const { inventory, locks, close } = await open(url);
      await inventory.set({ sku: "b", quantity: 1, operationId: "supply-b" });
      const held = await locks.lock("sku/b", { ttl: "60s", wait: 60_000 });
      expect(await add()).toMatchObject({ error: { errorType: "LockTimeoutError" } });
      await held.unlock();
      const replays: unknown[] = [];
      for (let i = 0; i < 2; i += 1) {
        const { result } = (await add()) as { result: { remaining: number; replayed: boolean } };
        expect(result.remaining).toBe(6);
        replays.push(result.replayed);
      }
      expect(replays).toEqual([false, true]);
      await close();
    });

    test("report a day once, and sweep", async () => {
      await using schedule = deployed("schedule", { env: { LOCKSTEP_REPORT_SKUS: "a,none" } });
      const fire = () => schedule.invoke({ time: "2026-03-04T00:10:00Z" });
      const runId = "stock-report:2026-03-04T00:00:00.000Z";
      const first = await fire();
      expect(first).toMatchObject({
        result: { runId, status: "completed", output: [{ sku: "a" }] },
      });
      const { inventory, close } = await open(url);
      await inventory.restock({ sku: "a", quantity: 1, operationId: "between" });
      await close();
      expect(await fire()).toEqual(first);
      await using sweep = deployed("sweep");
      expect(await sweep.invoke({})).toMatchObject({ type: "response", result: { refused: 0 } });
    });

    test("log and count the events of a run with its lock and fence, and log no secret", async () => {
      const [token, key] = ["0123456789abcdef", "order-7"];
      const file = await openFile(join(home, "log"), "w+");
      await using fn = deployed("http", {
        log: file.fd,
        env: { LOCKSTEP_TOKEN: token, LOCKSTEP_LOG: "debug", LOCKSTEP_SERVICE: "shop" },
      });
      const place = (body: object) => {
        const headers = { "content-type": "application/json", "idempotency-key": key };
        const path = "/workflows/place-order/runs";
        const all = { ...headers, authorization: `Bearer ${token}` };
        return fn.invoke(request("POST", path, all, body));
      };
      const order = { orderId: key, sku: "a", quantity: 1, secret: "body-4f21" };
      expect(await place(order)).toMatchObject({ result: { statusCode: 200 } });
      expect(await place(order)).toMatchObject({ result: { statusCode: 200 } });
      const text = await readFile(join(home, "log"), "utf8");
      await file.close();
      for (const secret of [token, "body-4f21", url]) expect(text).not.toContain(secret);
      const lines = text
        .trim()
        .split("\n")
        .map((line) => JSON.parse(line));
      const [acquired] = lines.filter(({ event }) => event === "lock acquired");
      const { request: id, fence } = acquired;
      expect(acquired).toMatchObject({ level: "debug", run: key, step: "sell", lock: "sku/a" });
      const of = (event: string) =>
        lines.find((line) => line.event === event && line.request === id);
      expect(of("run taken")).toMatchObject({ run: key, workflow: "place-order" });
      expect(of("run recorded")).toMatchObject({ run: key, step: "sell", outcome: "ok", fence });
      expect(of("stock answered")).toMatchObject({ run: key, lock: "sku/a", fence });
      expect(of("request")).toMatchObject({ run: key, status: 200 });
      const counted = lines.filter(({ _aws }) => _aws);
      expect(counted).toContainEqual(
        expect.objectContaining({
          service: "shop",
          "lockstep.workflow": "place-order",
          "lockstep.run.ended": [1],
        }),
      );
      expect(counted.at(-1)).toMatchObject({ "lockstep.subject": "run", "lockstep.replays": [1] });
      for (const { _aws } of counted) expect(_aws.CloudWatchMetrics[0].Namespace).toBe("Lockstep");
    });

    test("name the variable that is missing", async () => {
      await using fn = deployed("sweep", { env: { LOCKSTEP_STORE: undefined } });
      const errorMessage = "the environment is not valid: LOCKSTEP_STORE is missing";
      expect(await fn.invoke({})).toMatchObject({ type: "error", error: { errorMessage } });
    });
  },
);
