import { readFileSync } from "node:fs";
import { expect } from "vitest";
import { dynamodbStore } from "../../../core/stores/dynamodb/store.ts";
import { METRICS } from "../../../functions/telemetry/metrics.ts";
import type { Alarm, DeployedFunction, DeployedQueue, Deployment, Mapping } from "./deployment.ts";

type Check = (deployment: Deployment) => void;

/** What every deployment on AWS keeps to: ours, and those of the projects that `lockstep init` makes. */
export const CHECKS: Readonly<Record<string, Check>> = {
  "a message stays invisible for six timeouts of its function and the batching window"(all) {
    for (const { mapping, queue, fn } of sources(all)) {
      expect(queue.visibility).toBeGreaterThanOrEqual(6 * fn.timeout + mapping.window);
      // Ten messages and fewer need no window; more are refused without one.
      expect(mapping.batchSize <= 10 || mapping.window >= 1).toBe(true);
    }
  },

  "a batch answers for each of its messages"(all) {
    for (const { mapping } of sources(all)) expect(mapping.reportsFailures).toBe(true);
  },

  "batches are never throttled, and fit with everything else into the quota of a new account"(all) {
    for (const { mapping, fn } of sources(all)) {
      expect(mapping.concurrency).toBeGreaterThanOrEqual(2);
      expect(fn.reserved ?? Infinity).toBeGreaterThanOrEqual(mapping.concurrency ?? Infinity);
    }
    // Lambda reserves none of the ten concurrent executions of a new account.
    expect(all.functions.filter(({ reserved }) => reserved !== undefined)).toEqual([]);
    const batches = all.mappings.map(({ concurrency = Infinity }) => concurrency);
    expect(batches.reduce((sum, one) => sum + one, 0)).toBeLessThanOrEqual(5);
  },

  "a queue has a dead-letter queue of its own that contention does not fill"(all) {
    for (const { queue, fn } of sources(all)) {
      expect(queue.redrive?.after).toBeGreaterThanOrEqual(100);
      const dead = queueOf(all, queue.redrive?.to);
      expect(Object.values(fn.environment)).toContain(dead.id);
      expect(dead.redriveFrom).toEqual([queue.id]);
      expect(queue.redriveFrom).toEqual([]);
    }
    const targets = all.queues.flatMap(({ redrive }) => redrive?.to ?? []);
    expect(new Set(targets).size).toBe(targets.length);
    const others = all.queues.filter(({ id }) => !targets.includes(id));
    for (const { redriveFrom } of others) expect(redriveFrom).toEqual([]);
  },

  "a dead letter is kept for longer than a message of the queue"(all) {
    for (const { queue } of sources(all)) {
      const { retention } = queueOf(all, queue.redrive?.to);
      expect(retention).toBeGreaterThan(queue.retention);
    }
  },

  "queues are encrypted, refuse plain text, and outlive their stack"(all) {
    for (const queue of all.queues) {
      expect(queue).toMatchObject({ isEncrypted: true, isTlsOnly: true, isRetained: true });
    }
  },

  "a table is that of lockstep migrate, encrypted and recoverable, and outlives its stack"(all) {
    for (const { definition, ...table } of all.tables) {
      expect(definition).toEqual(TABLE);
      expect(table).toMatchObject({ isEncrypted: true, isRecoverable: true });
      expect(table).toMatchObject({ isProtected: true, isRetained: true });
    }
  },

  "functions, queues and tables have the tags service and stage"(all) {
    for (const one of [...all.functions, ...all.queues, ...all.tables]) {
      expect(one.isTagged, one.id).toBe(true);
    }
  },

  "functions run on Node 24 inside the network of their database, if it is no table, and are traced"(
    all,
  ) {
    expect(all.functions.length).toBeGreaterThanOrEqual(4);
    const isInNetwork = all.tables.length === 0;
    for (const fn of all.functions) {
      expect(fn).toMatchObject({ runtime: "nodejs24.x", isInNetwork, isTraced: true });
    }
  },

  "functions trust the authorities of RDS, or name their table, and know secrets by their ARNs alone"(
    all,
  ) {
    const [table] = all.tables;
    const authorities = table ? undefined : "/var/runtime/ca-cert.pem";
    for (const { environment } of all.functions) {
      expect(environment.NODE_EXTRA_CA_CERTS).toBe(authorities);
      expect(environment.TABLE).toBe(table?.id);
      expect(JSON.stringify(environment)).not.toMatch(/:\/\/[^/]*@|resolve:/);
    }
  },

  "every function has a role of its own, with no more than it needs"(all) {
    const roles = all.functions.map(({ role }) => role);
    const tables = all.tables.map(({ id }) => id);
    expect(new Set(roles).size).toBe(all.functions.length);
    for (const fn of all.functions) {
      const allowed = fn.statements.filter(({ effect }) => effect === "Allow");
      for (const { actions, resources } of allowed) {
        expect(actions.filter((action) => action.includes("*"))).toEqual([]);
        const isUnbound = actions.every((action) => /^(ec2|xray):/.test(action));
        if (!isUnbound) expect(resources).not.toContain("*");
        expect(actions.filter((action) => !KNOWN.test(action))).toEqual([]);
      }
      const onTables = allowed.filter(({ actions }) => actions.some(isOnTables));
      for (const { resources } of onTables) expect(resources).toEqual(tables);
      const rights = onTables.flatMap(({ actions }) => actions);
      expect(rights.sort()).toEqual(tables.length > 0 ? TABLE_RIGHTS : []);
      expect(queuesOf(fn, "sqs:SendMessage")).toEqual(targetsOf(all, fn));
      const consumed = all.mappings.filter((one) => one.function === fn.id);
      for (const action of [
        "sqs:ReceiveMessage",
        "sqs:DeleteMessage",
        "sqs:ChangeMessageVisibility",
      ]) {
        expect(queuesOf(fn, action)).toEqual(consumed.map(({ queue }) => queue));
      }
    }
  },

  "the code of a function may not use its rights on the network"(all) {
    for (const { statements, isInNetwork } of all.functions) {
      const withEffect = (one: string) =>
        statements.filter(({ effect }) => effect === one).flatMap(({ actions }) => actions);
      const rights = withEffect("Allow").filter((action) => action.startsWith("ec2:"));
      if (isInNetwork) expect(withEffect("Deny")).toContain("ec2:*");
      else expect(rights).toEqual([]);
    }
  },

  "the HTTP API answers before API Gateway gives up, is throttled, and has an access log"(all) {
    expect(all.stages).toHaveLength(1);
    for (const { rate, burst, log } of all.stages) {
      expect(rate).toBeGreaterThan(0);
      expect(burst).toBeGreaterThan(0);
      expect(all.logGroups.map(({ id }) => id)).toContain(log);
    }
    expect(functionOf(all, /http/i).timeout).toBeLessThan(30);
  },

  "every log group has a retention, and every function a log group"(all) {
    for (const { days } of all.logGroups) expect(days).toBe(30);
    const names = all.logGroups.map(({ name }) => name);
    for (const { name } of all.functions) expect(names).toContain(`/aws/lambda/${name}`);
  },

  "a sweep ends before the next one, and failed events of the schedule are kept"(all) {
    const sweep = functionOf(all, /sweep/i);
    const schedule = functionOf(all, /schedule/i);
    const expressionOf = (id: string) =>
      all.schedules.find((one) => one.function === id)?.expression;
    expect(expressionOf(sweep.id)).toBe("rate(1 minute)");
    expect(sweep).toMatchObject({ retries: 0 });
    expect(sweep.timeout).toBeLessThan(60);
    expect(expressionOf(schedule.id)).toMatch(/^(cron|rate)\(/);
    expect(queueOf(all, schedule.onFailure).retention).toBe(1_209_600);
  },

  "alarms watch dead letters, waiting messages and functions"(all) {
    const targets = all.mappings.map(({ queue }) => queueOf(all, queue).redrive?.to);
    const dead = [...targets, functionOf(all, /schedule/i).onFailure];
    const sourceIds = all.mappings.map(({ queue }) => queue);
    expect(watched(all, "ApproximateNumberOfMessagesVisible")).toEqual(dead.sort());
    expect(watched(all, "ApproximateAgeOfOldestMessage")).toEqual(sourceIds.sort());
    const stuck = all.alarms.filter(({ metrics }) => metrics.length === 2);
    expect(stuck.map(({ dimensions }) => dimensions.QueueName).sort()).toEqual(sourceIds);
    for (const { metrics } of stuck) {
      expect(metrics).toEqual(["NumberOfMessagesReceived", "NumberOfMessagesDeleted"]);
    }
    const consumers = all.mappings.map((one) => one.function);
    const scheduled = all.schedules.map((one) => one.function);
    // Whoever invokes the other functions gets their errors.
    const operated = [functionOf(all, /http/i).id, ...consumers, ...scheduled];
    expect(watched(all, "Errors")).toEqual(operated.sort());
    expect(watched(all, "Throttles")).toEqual(consumers.sort());
  },

  "alarms watch the HTTP API and the sweep that does not run"(all) {
    // While its stores are unavailable, the app answers 503, and the function does not fail.
    const [unavailable] = alarmsOn(all, "5xx");
    expect(unavailable?.dimensions).toEqual({ ApiId: all.stages[0]?.api });
    const [absent] = alarmsOn(all, "Invocations");
    expect(absent?.dimensions).toEqual({ FunctionName: functionOf(all, /sweep/i).id });
    const fewerThanOne = { comparison: "LessThanThreshold", threshold: 1, missing: "breaching" };
    expect(absent).toMatchObject(fewerThanOne);
  },

  "alarms watch lost locks and fenced-out writes, by the metrics that the functions write"(all) {
    const ours = all.alarms.filter(({ namespace }) => namespace === "Lockstep");
    const metrics = ours.flatMap(({ metrics }) => metrics);
    expect(metrics).toEqual(expect.arrayContaining(["lockstep.lock.lost", "lockstep.fenced_out"]));
    for (const metric of metrics) expect(METRICS).toHaveProperty([metric]);
    for (const { dimensions } of ours) {
      for (const { environment } of all.functions) {
        expect(dimensions.service).toBe(environment.LOCKSTEP_SERVICE);
      }
    }
  },

  "every alarm notifies, and takes missing data for what it means"(all) {
    for (const { isNotified, missing, metrics } of all.alarms) {
      expect(isNotified).toBe(true);
      expect(missing).toBe(metrics[0] === "Invocations" ? "breaching" : "notBreaching");
    }
  },
};

/** What `lockstep migrate` makes. */
const { TableName: _, ...TABLE } = JSON.parse(
  dynamodbStore({
    region: "local",
    table: "shop",
    credentials: { accessKeyId: "key", secretAccessKey: "secret" },
  }).table.definition,
);

/** The actions that the policy of docs/stores/dynamodb.md allows on a table. */
const TABLE_RIGHTS: readonly string[] = rightsOfDocs();

function rightsOfDocs(): readonly string[] {
  const page = readFileSync(new URL("../../../docs/stores/dynamodb.md", import.meta.url), "utf8");
  const [, policy = "{}"] = /^```json\n(.*?)^```$/ms.exec(page) ?? [];
  return JSON.parse(policy).Action;
}

const isOnTables = (action: string) => action.startsWith("dynamodb:");

/** All actions that a function may have. */
const KNOWN =
  /^(logs:(CreateLogStream|PutLogEvents)|xray:Put(TraceSegments|TelemetryRecords)|secretsmanager:GetSecretValue|sqs:(SendMessage|ReceiveMessage|DeleteMessage|ChangeMessageVisibility|GetQueueAttributes|GetQueueUrl)|dynamodb:\w+|ec2:\w+)$/;

interface Source {
  readonly mapping: Mapping;
  readonly queue: DeployedQueue;
  readonly fn: DeployedFunction;
}

/** Each queue with its function. */
export function sources(all: Deployment): readonly Source[] {
  expect(all.mappings.length).toBeGreaterThan(0);
  return all.mappings.map((mapping) => ({
    mapping,
    queue: queueOf(all, mapping.queue),
    fn: functionOf(all, mapping.function),
  }));
}

function queueOf({ queues }: Deployment, id: string | undefined): DeployedQueue {
  const queue = queues.find((one) => one.id === id);
  if (!queue) throw new Error(`there is no queue ${id}`);
  return queue;
}

/** The function of this id, or the one whose id matches. */
function functionOf({ functions }: Deployment, id: string | RegExp): DeployedFunction {
  const fn = functions.find((one) => (id instanceof RegExp ? id.test(one.id) : id === one.id));
  if (!fn) throw new Error(`there is no function ${id}`);
  return fn;
}

/** The queues to which the function may do something. */
function queuesOf({ statements }: DeployedFunction, action: string): readonly string[] {
  return statements
    .filter(({ effect, actions }) => effect === "Allow" && actions.includes(action))
    .flatMap(({ resources }) => resources);
}

/** The queues that a function sends to: the dead-letter queues of its own queues, and of its failed events. */
function targetsOf(all: Deployment, fn: DeployedFunction): readonly string[] {
  const own = all.mappings.filter((one) => one.function === fn.id);
  const dead = own.flatMap(({ queue }) => queueOf(all, queue).redrive?.to ?? []);
  return [...dead, ...(fn.onFailure === undefined ? [] : [fn.onFailure])];
}

function alarmsOn({ alarms }: Deployment, metric: string): readonly Alarm[] {
  return alarms.filter(({ metrics }) => metrics.length === 1 && metrics[0] === metric);
}

/** The queues or functions of the alarms on a metric. */
function watched(all: Deployment, metric: string): readonly (string | undefined)[] {
  return alarmsOn(all, metric)
    .map(({ dimensions }) => Object.values(dimensions)[0])
    .sort();
}
