import { expect } from "vitest";
import { CHECKS } from "./checks.ts";
import type { Deployment } from "./deployment.ts";

type Mutable<T> = T extends object ? { -readonly [K in keyof T]: Mutable<T[K]> } : T;

/** Faults of a deployment, each by the start of the check that must find it. */
type Faults = Readonly<Record<string, readonly ((all: Mutable<Deployment>) => unknown)[]>>;

const FAULTS: Faults = {
  "a message stays": [({ queues }) => set(queues, "visibility", 60)],
  "a batch answers": [({ mappings }) => set(mappings, "reportsFailures", false)],
  "batches are never": [
    ({ functions }) => set(functions, "reserved", 10),
    ({ mappings }) => set(mappings, "concurrency", undefined),
    ({ mappings }) => set(mappings, "concurrency", 6),
  ],
  "a queue has a dead": [
    ({ queues }) => set(queues, "redrive", { to: queues[1]?.id ?? "", after: 3 }),
    ({ queues }) => set(queues, "redriveFrom", undefined),
    ({ functions }) => set(functions, "environment", {}),
  ],
  "a dead letter": [({ queues }) => set(queues, "retention", 1_209_600)],
  "queues are encrypted": [
    ({ queues }) => set(queues, "isEncrypted", false),
    ({ queues }) => set(queues, "isTlsOnly", false),
    ({ queues }) => set(queues, "isRetained", false),
  ],
  "functions, queues": [
    ({ queues }) => set(queues, "isTagged", false),
    ({ functions }) => set(functions, "isTagged", false),
  ],
  "functions run": [
    ({ functions }) => set(functions, "runtime", "nodejs20.x"),
    ({ functions }) => set(functions, "isTraced", false),
  ],
  "functions trust": [
    ({ functions }) => set(functions, "environment", {}),
    ({ functions }) => addVariable(functions, "STORE", "mysql://shop:secret@db/shop"),
  ],
  "every function has a role": [
    ({ functions }) => set(functions, "role", "One"),
    allow(["sqs:*"], ["Orders"]),
    allow(["secretsmanager:GetSecretValue"], ["*"]),
    allow(["dynamodb:PutItem"], ["Table"]),
    allow(["sqs:SendMessage"], ["Another"]),
    allow(["sqs:ReceiveMessage"], ["Another"]),
  ],
  "the HTTP API": [
    ({ stages }) => set(stages, "rate", undefined),
    ({ stages }) => set(stages, "burst", undefined),
    ({ stages }) => set(stages, "log", undefined),
    ({ functions }) => set(functions, "timeout", 30),
  ],
  "every log group": [
    ({ logGroups }) => set(logGroups, "days", undefined),
    ({ logGroups }) => logGroups.splice(0),
  ],
  "a sweep ends": [
    ({ schedules }) => set(schedules, "expression", "rate(5 minutes)"),
    ({ functions }) => set(functions, "timeout", 60),
    ({ functions }) => set(functions, "onFailure", undefined),
    ({ functions }) => set(functions, "retries", 2),
  ],
  "alarms watch dead": [
    "ApproximateNumberOfMessagesVisible",
    "ApproximateAgeOfOldestMessage",
    "NumberOfMessagesReceived",
    "Errors",
    "Throttles",
  ].map(withoutAlarm),
  "alarms watch the HTTP": ["5xx", "Invocations"].map(withoutAlarm),
  "alarms watch lost": [
    ...["lockstep.lock.lost", "lockstep.fenced_out"].map(withoutAlarm),
    ({ alarms }) => set(alarms, "dimensions", { service: "another" }),
  ],
  "every alarm notifies": [
    ({ alarms }) => set(alarms, "isNotified", false),
    ({ alarms }) => set(alarms, "missing", "missing"),
  ],
};

/** Faults of a deployment whose database is in a network. */
const NETWORK_FAULTS: Faults = {
  "functions run": [({ functions }) => set(functions, "isInNetwork", false)],
  "the code of a function": [({ functions }) => set(functions, "statements", [])],
};

/** Faults of a deployment with a table. */
const TABLE_FAULTS: Faults = {
  "a table": [
    ({ tables }) => set(tables, "isEncrypted", false),
    ({ tables }) => set(tables, "isRecoverable", false),
    ({ tables }) => set(tables, "isProtected", false),
    ({ tables }) => set(tables, "isRetained", false),
    ({ tables }) => tables[0]?.definition.KeySchema.pop(),
    ({ tables }) => tables[0]?.definition.AttributeDefinitions.pop(),
    ({ tables }) =>
      set(
        tables.map(({ definition }) => definition),
        "BillingMode",
        "PROVISIONED",
      ),
  ],
  "functions, queues": [({ tables }) => set(tables, "isTagged", false)],
  "functions run": [
    ({ functions }) => set(functions, "isInNetwork", true),
    ({ tables }) => tables.splice(0),
  ],
  "functions trust": [({ functions }) => addVariable(functions, "TABLE", "another")],
  "every function has a role": [
    ({ tables }) => set(tables, "id", "another"),
    ({ functions }) => {
      for (const { statements } of functions) {
        const at = statements.findIndex(({ actions }) => actions.includes("dynamodb:Query"));
        statements.splice(at, 1);
      }
    },
  ],
  "the code of a function": [allow(["ec2:CreateNetworkInterface"], ["*"])],
};

function addVariable(functions: Mutable<Deployment>["functions"], name: string, value: string) {
  for (const fn of functions) fn.environment = { ...fn.environment, [name]: value };
}

function set<T, K extends keyof T>(all: T[], key: K, value: T[K]): void {
  for (const one of all) one[key] = value;
}

function allow(actions: readonly string[], resources: readonly string[]) {
  return ({ functions }: Mutable<Deployment>) => {
    const more = { effect: "Allow", actions: [...actions], resources: [...resources] };
    for (const fn of functions) fn.statements = [...fn.statements, more];
  };
}

function withoutAlarm(metric: string) {
  return (all: Mutable<Deployment>) => {
    all.alarms = all.alarms.filter(({ metrics }) => !metrics.includes(metric));
  };
}

/** Breaks a right deployment in each way, and expects that the check of the fault fails. */
export function expectFaultsFound(right: Deployment): void {
  const more = right.tables.length > 0 ? TABLE_FAULTS : NETWORK_FAULTS;
  for (const [name, check] of Object.entries(CHECKS)) {
    if (right.tables.length === 0 && name.startsWith("a table")) continue;
    const faults = [FAULTS, more].flatMap((all) =>
      Object.entries(all).flatMap(([start, faults]) => (name.startsWith(start) ? faults : [])),
    );
    expect(faults.length, name).toBeGreaterThan(0);
    for (const [i, fault] of faults.entries()) {
      const broken = structuredClone(right) as Mutable<Deployment>;
      fault(broken);
      expect(() => check(broken), `${name}, fault ${i + 1}`).toThrow();
    }
  }
}
