import { mkdtemp, open as openFile, readdir, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { SELL_BUDGET } from "../../functions/aws/place-order.ts";
import { LOCK_TTL } from "../../functions/aws/stock.ts";
import { LEAST_WORK, toReserve } from "../../functions/lambda/invocation.ts";
import { DEFAULT_WAIT } from "../../functions/queue/stock-handler.ts";
import { measured } from "../../functions/telemetry/measured.ts";
import { METRICS } from "../../functions/telemetry/metrics.ts";
import { open } from "../../infra/open.ts";
import { CLIENTS } from "../support/lambda-host/clients.ts";
import type { FunctionOptions } from "../support/lambda-host/environment.ts";
import { EventSource } from "../support/lambda-host/event-source.ts";
import { LambdaFunction } from "../support/lambda-host/function.ts";
import { Queue } from "../support/lambda-host/queue.ts";
import { sqsEndpoint } from "../support/lambda-host/sqs-endpoint.ts";
import { type Packaged, packageAll, type Resource } from "../support/packaged.ts";
import { until } from "../support/until.ts";

let packaged: Packaged;

beforeAll(async () => {
  packaged = await packageAll();
}, 180_000);

afterAll(() => packaged[Symbol.asyncDispose]());

const ofType = (type: string) =>
  Object.entries(packaged.template.Resources).filter(([, resource]) => resource.Type === type);

const properties = (name: string) => packaged.template.Resources[name]?.Properties;

/** The resource that a reference names. */
const named = (reference: { readonly "Fn::GetAtt"?: readonly string[]; readonly Ref?: string }) =>
  reference["Fn::GetAtt"]?.[0] ?? reference.Ref ?? "";

/** Every queue that a function works on, with all that belongs to it. */
const sources = () =>
  ofType("AWS::Lambda::EventSourceMapping").map(([, { Properties: source }]) => {
    const queueName = named(source.EventSourceArn);
    const functionName = named(source.FunctionName);
    return {
      source,
      queueName,
      queue: properties(queueName),
      functionName,
      fn: properties(functionName),
    };
  });

describe("the template", () => {
  test("keeps a message invisible for six timeouts of its function and the batching window", () => {
    expect(sources()).toHaveLength(2);
    for (const { source, queue, fn } of sources()) {
      const window = source.MaximumBatchingWindowInSeconds ?? 0;
      expect(queue.VisibilityTimeout).toBeGreaterThanOrEqual(6 * fn.Timeout + window);
      // Ten messages and fewer need no window; more are refused without one.
      expect(source.BatchSize <= 10 || window >= 1).toBe(true);
    }
  });

  test("keeps a lock for no longer than a message is invisible", () => {
    const { queue } = sources().find(({ queueName }) => queueName === "Sales") ?? {};
    expect(LOCK_TTL).toBeLessThanOrEqual(queue.VisibilityTimeout * 1_000);
    for (const { queue, fn } of sources()) {
      // A lock of the ttl "invocation" outlasts the timeout by two seconds.
      expect(fn.Timeout + 2).toBeLessThanOrEqual(queue.VisibilityTimeout);
    }
  });

  test("takes partial answers, and never throttles the batches that it makes", () => {
    for (const { source, fn } of sources()) {
      expect(source.FunctionResponseTypes).toEqual(["ReportBatchItemFailures"]);
      const { MaximumConcurrency } = source.ScalingConfig;
      expect(MaximumConcurrency).toBeGreaterThanOrEqual(2);
      expect(fn.ReservedConcurrentExecutions).toBeGreaterThanOrEqual(MaximumConcurrency);
    }
  });

  test("gives every queue a dead-letter queue that contention does not fill, and both are kept long enough", () => {
    for (const { queue, queueName, fn } of sources()) {
      const { deadLetterTargetArn, maxReceiveCount } = queue.RedrivePolicy;
      expect(named(deadLetterTargetArn)).toBe(`${queueName}Dead`);
      expect(maxReceiveCount).toBeGreaterThanOrEqual(100);
      const poison = fn.Environment.Variables.LOCKSTEP_POISON_QUEUE;
      expect(named(poison)).toBe(`${queueName}Dead`);
      const dead = properties(`${queueName}Dead`);
      expect(dead.MessageRetentionPeriod).toBeGreaterThanOrEqual(queue.MessageRetentionPeriod);
    }
    for (const [, { Properties: queue }] of ofType("AWS::SQS::Queue")) {
      expect(queue.SqsManagedSseEnabled).toBe(true);
    }
  });

  test("lets no other queue redrive into a dead-letter queue, and none into the others", () => {
    for (const [name, { Properties: queue }] of ofType("AWS::SQS::Queue")) {
      const source = sources().find(({ queueName }) => name === `${queueName}Dead`);
      const own = { "Fn::Sub": expect.stringMatching(`:${source?.queue.QueueName}$`) };
      expect(queue.RedriveAllowPolicy).toEqual(
        source
          ? { redrivePermission: "byQueue", sourceQueueArns: [own] }
          : { redrivePermission: "denyAll" },
      );
    }
  });

  test("gives every function the time for one order, and what is kept for its end", () => {
    for (const name of ["Http", "Queue", "Sweep"]) {
      const millis = properties(`${name}LambdaFunction`).Timeout * 1_000;
      expect(SELL_BUDGET + LEAST_WORK + toReserve({})).toBeLessThan(millis / 2);
    }
    // What stands in line for a lock may still hold it for its ttl.
    const stock = properties("StockLambdaFunction").Timeout * 1_000;
    expect(DEFAULT_WAIT + LOCK_TTL + toReserve({})).toBeLessThanOrEqual(stock);
  });

  test("answers over HTTP before API Gateway gives up after 30 seconds", () => {
    expect(properties("HttpLambdaFunction").Timeout).toBeLessThan(30);
  });

  test("ends a sweep before the next one, and keeps what a schedule has failed with", () => {
    expect(properties("SweepEventsRuleSchedule1").ScheduleExpression).toBe("rate(1 minute)");
    expect(properties("SweepLambdaFunction").Timeout).toBeLessThan(60);
    const { Destination } = properties("ScheduleLambdaEvConf").DestinationConfig.OnFailure;
    expect(named(Destination)).toBe("EventsDead");
  });

  test("puts every function into the network, on a bounded share of the account", () => {
    const functions = ofType("AWS::Lambda::Function");
    expect(functions).toHaveLength(6);
    for (const [, { Properties: fn }] of functions) {
      expect(fn.VpcConfig).toMatchObject({ SecurityGroupIds: {}, SubnetIds: {} });
      expect(fn.ReservedConcurrentExecutions).toBeGreaterThan(0);
      expect(fn.Runtime).toBe("nodejs22.x");
    }
  });

  test("gives every function a role of its own that names what it may touch", () => {
    const roles = ofType("AWS::IAM::Role");
    expect(roles).toHaveLength(6);
    const used = ofType("AWS::Lambda::Function").map(([, { Properties: fn }]) => named(fn.Role));
    expect(used.sort()).toEqual(roles.map(([name]) => name).sort());
    for (const statement of roles.flatMap(([, role]) => statementsOf(role))) {
      const actions = [statement.Action].flat();
      const isNetwork = actions.every((action: string) => action.startsWith("ec2:"));
      if (statement.Effect !== "Allow") continue;
      expect(actions.filter((action: string) => action.includes("*"))).toEqual([]);
      if (!isNetwork) expect(JSON.stringify(statement.Resource)).not.toContain('"*"');
    }
    const may = (role: string) => [
      ...new Set(
        statementsOf(packaged.template.Resources[role]).flatMap((one) =>
          one.Effect === "Allow" ? one.Action : [],
        ),
      ),
    ];
    expect(
      may("QueueRole")
        .filter((action) => action.startsWith("sqs:"))
        .sort(),
    ).toEqual([
      "sqs:ChangeMessageVisibility",
      "sqs:DeleteMessage",
      "sqs:GetQueueAttributes",
      "sqs:ReceiveMessage",
      "sqs:SendMessage",
    ]);
    expect(may("HttpRole").filter((action) => action.startsWith("sqs:"))).toEqual([]);
  });

  test("tells somebody when messages are given up, wait for long, or functions fail", () => {
    const alarms = ofType("AWS::CloudWatch::Alarm").map(([, { Properties: alarm }]) => alarm);
    const about = (metric: string) =>
      alarms
        .filter(({ MetricName }) => MetricName === metric)
        .map(({ Dimensions }) => named(Dimensions[0].Value))
        .sort();
    expect(about("ApproximateNumberOfMessagesVisible")).toEqual([
      "EventsDead",
      "OrdersDead",
      "SalesDead",
    ]);
    expect(about("ApproximateAgeOfOldestMessage")).toEqual(["Orders", "Sales"]);
    expect(about("Errors")).toHaveLength(5);
    for (const { queueName: name } of sources()) {
      const stuck = properties(`${name}AreStuck`);
      expect(stuck.Metrics.map(({ Id }: { Id: string }) => Id)).toEqual([
        "stuck",
        "received",
        "done",
      ]);
      for (const { MetricStat } of stuck.Metrics.slice(1)) {
        expect(named(MetricStat.Metric.Dimensions[0].Value)).toBe(name);
      }
    }
    // While its stores are away, the app says so, and the function does not fail.
    const [api] = ofType("AWS::ApiGatewayV2::Api");
    const { Namespace, MetricName, Dimensions } = properties("HttpIsUnavailable");
    expect([Namespace, MetricName]).toEqual(["AWS/ApiGateway", "5xx"]);
    expect(Dimensions).toEqual([{ Name: "ApiId", Value: { Ref: api?.[0] } }]);
    // What runs once a day never fails in two minutes that follow each other.
    expect(properties("ScheduleFails").EvaluationPeriods).toBe(1);
    const ours = alarms.filter(({ Namespace }) => Namespace === "Lockstep");
    expect(ours.map(({ MetricName }) => MetricName).sort()).toEqual([
      "lockstep.lock.lost",
      "lockstep.run.ended",
    ]);
    for (const { MetricName, Dimensions } of ours) {
      expect(METRICS).toHaveProperty([MetricName]);
      for (const [, { Properties: fn }] of ofType("AWS::Lambda::Function")) {
        expect(Dimensions[0].Value).toBe(fn.Environment.Variables.LOCKSTEP_SERVICE);
      }
    }
    for (const { AlarmActions } of alarms) expect(AlarmActions).toEqual([{ Ref: "AlarmTopic" }]);
  });

  test("raises the alarm for a report that has failed, by the dimensions with which it is counted", () => {
    const { MetricName, Dimensions } = properties("ReportFails");
    const counted: unknown[] = [];
    const { runtime } = measured((...measurement) => void counted.push(measurement));
    const run = { runId: "1", workflow: "stock-report" };
    runtime.onEvent?.({ ...run, type: "ended", status: "failed" });
    const own = Dimensions.slice(1).map((one: { Name: string; Value: string }) => [
      one.Name,
      one.Value,
    ]);
    expect(counted).toEqual([[MetricName, 1, Object.fromEntries(own)]]);
  });

  test("holds no secret, but where each of them is", () => {
    const text = JSON.stringify(packaged.template);
    expect(text).not.toMatch(/mysqls?:\/\/|etcds?:\/\/|resolve:/);
    for (const [, { Properties: fn }] of ofType("AWS::Lambda::Function")) {
      const names = Object.keys(fn.Environment.Variables);
      for (const name of ["LOCKSTEP_STORE", "LOCKSTEP_LOCKS", "LOCKSTEP_TOKEN"]) {
        expect(names).not.toContain(name);
      }
    }
  });
});

// biome-ignore lint/suspicious/noExplicitAny: statements of any form
const statementsOf = (role: Resource | undefined): any[] =>
  // biome-ignore lint/suspicious/noExplicitAny: policies of any form
  role?.Properties.Policies.flatMap((policy: any) => policy.PolicyDocument.Statement) ?? [];

test("every function has a log group that forgets", () => {
  const groups = ofType("AWS::Logs::LogGroup").map(([, { Properties: group }]) => group);
  const names = ofType("AWS::Lambda::Function").map(([, { Properties: fn }]) => fn.FunctionName);
  expect(groups.map(({ LogGroupName }) => LogGroupName).sort()).toEqual(
    names.map((name) => `/aws/lambda/${name}`).sort(),
  );
  for (const { RetentionInDays } of groups) expect(RetentionInDays).toBe(30);
});

describe("the zips", () => {
  test("are the same bytes when they are made again", async () => {
    await using again = await packageAll();
    for (const [name, zip] of Object.entries(packaged.zips)) {
      expect(Buffer.from(zip).equals(again.zips[name] ?? Buffer.of()), name).toBe(true);
    }
  }, 180_000);

  test("hold a function each, and nothing else", async () => {
    const functions = ["http", "migrate", "queue", "schedule", "stock", "sweep"];
    expect(Object.keys(packaged.zips).sort()).toEqual(functions);
    for (const name of functions) {
      const folder = join(packaged.unpacked, name);
      expect(await readdir(folder)).toEqual(["build"]);
      expect(await readdir(join(folder, "build"))).toEqual([name]);
      const files = await readdir(join(folder, "build", name));
      expect(files).toContain("index.js");
      expect(files.filter((file) => !/\.js$|^migrations$|^package\.json$/.test(file))).toEqual([]);
    }
  });

  test("hold what the template calls", () => {
    for (const name of Object.keys(packaged.zips)) {
      const { Handler, Code } = properties(`${capital(name)}LambdaFunction`);
      expect(Handler).toBe(`build/${name}/index.handler`);
      expect(Code.S3Key).toMatch(new RegExp(`/${name}\\.zip$`));
    }
  });
});

const capital = (name: string) => name.slice(0, 1).toUpperCase() + name.slice(1);

describe.each(Object.keys(CLIENTS))(
  "the unzipped handlers on the Lambda host with %s",
  (client) => {
    let home: string;
    let url: string;

    beforeAll(async () => {
      home = await mkdtemp(join(tmpdir(), "lockstep-deployed-"));
      url = `sqlite:${join(home, "shop.db")}`;
      const { inventory, close } = await open(url);
      await inventory?.set({ sku: "a", quantity: 10, operationId: "supply" });
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

    test("make the tables", async () => {
      await using fn = deployed("migrate");
      expect(await fn.invoke({})).toEqual({ type: "response", result: { applied: [] } });
    });

    test("answer over HTTP, and refuse whoever presents no token", async () => {
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
    ])(
      "sell to the messages of a queue: %s",
      async (name, prefix) => {
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
        await until(() => queue.messages.length === 0, 20_000);
        expect(poison.messages).toMatchObject([
          { body: "{", attributes: { code: "INVALID_MESSAGE" } },
        ]);
        const { inventory, close } = await open(url);
        const entries = (await inventory?.history("a")) ?? [];
        expect(entries.filter(({ operationId }) => operationId?.startsWith(prefix))).toHaveLength(
          3,
        );
        await close();
      },
      40_000,
    );

    test("report on a day, once, and sweep", async () => {
      await using schedule = deployed("schedule", { env: { LOCKSTEP_REPORT_SKUS: "a,none" } });
      const fire = () => schedule.invoke({ time: "2026-03-04T00:10:00Z" });
      const runId = "stock-report:2026-03-04T00:00:00.000Z";
      const first = await fire();
      expect(first).toMatchObject({
        result: { runId, status: "completed", output: [{ sku: "a" }] },
      });
      const { inventory, close } = await open(url);
      await inventory?.restock({ sku: "a", quantity: 1, operationId: "between" });
      await close();
      expect(await fire()).toEqual(first);
      await using sweep = deployed("sweep");
      expect(await sweep.invoke({})).toMatchObject({ type: "response", result: { refused: 0 } });
    });

    test("log what a run does, with its lock and its fence, and count it; and log no secret", async () => {
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
      const [acquired] = lines.filter(({ what }) => what === "lock acquired");
      const { request: id, fence } = acquired;
      expect(acquired).toMatchObject({ level: "debug", run: key, step: "sell", lock: "sku/a" });
      const of = (what: string) => lines.find((line) => line.what === what && line.request === id);
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
      expect(counted.at(-1)).toMatchObject({ "lockstep.what": "run", "lockstep.replays": [1] });
      for (const { _aws } of counted) expect(_aws.CloudWatchMetrics[0].Namespace).toBe("Lockstep");
    });

    test("name the variable that is missing", async () => {
      await using fn = deployed("sweep", { env: { LOCKSTEP_STORE: undefined } });
      const errorMessage = "the environment is not right: LOCKSTEP_STORE is missing";
      expect(await fn.invoke({})).toMatchObject({ type: "error", error: { errorMessage } });
    });
  },
);
