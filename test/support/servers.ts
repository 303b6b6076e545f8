import type { RunnerTask, RunnerTestFile } from "vitest";
import type { TestProject } from "vitest/node";
import { type DynamodbServer, startDynamodbServers } from "./dynamodb-servers.ts";
import { type EtcdServer, startEtcdServers } from "./etcd-servers.ts";
import type { Missing } from "./missing.ts";
import { type RedisServer, startRedisServers } from "./redis-servers.ts";
import { type SqlServer, startPostgresServers, startSqlServers } from "./sql-servers.ts";
import setUpFolder from "./temporary-folder.ts";
import { startZooKeeperServers, type ZooKeeperServer } from "./zookeeper-servers.ts";

declare module "vitest" {
  export interface ProvidedContext {
    readonly sqlServers: (SqlServer & Partial<Missing>)[];
    readonly postgresServers: (SqlServer & Partial<Missing>)[];
    readonly etcdServers: (EtcdServer & Partial<Missing>)[];
    readonly redisServers: (RedisServer & Partial<Missing>)[];
    readonly zookeeperServers: (ZooKeeperServer & Partial<Missing>)[];
    readonly dynamodbServers: (DynamodbServer & Partial<Missing>)[];
  }
}

/** Starts the servers of the tests, installs missing ones, and stops all of them afterwards. */
export default async function setUp(project: TestProject): Promise<() => Promise<void>> {
  const log = (step: string) => process.stderr.write(`servers: ${step}\n`);
  // Before the setup of the whole run, which vitest calls last.
  const removeFolder = await setUpFolder();
  const [sql, postgres, etcd, redis, zookeeper, dynamodb] = await Promise.all([
    startSqlServers(log),
    startPostgresServers(log),
    startEtcdServers(log),
    startRedisServers(log),
    startZooKeeperServers(log),
    startDynamodbServers(log),
  ]);
  project.provide("sqlServers", descriptions(sql));
  project.provide("postgresServers", descriptions(postgres));
  project.provide("etcdServers", descriptions(etcd));
  project.provide("redisServers", descriptions(redis));
  project.provide("zookeeperServers", descriptions(zookeeper));
  project.provide("dynamodbServers", descriptions(dynamodb));
  return async () => {
    const all = [...sql, ...postgres, ...etcd, ...redis, ...zookeeper, ...dynamodb];
    await Promise.all(all.map((server) => server.stop()));
    await removeFolder?.();
    reportSkipped(project.vitest.state.getFiles());
  };
}

function descriptions<T>(servers: readonly { readonly about: T }[]): T[] {
  return servers.map(({ about }) => about);
}

/** Reports skipped tests and how to install their servers. With `CI` set, as on build servers, the run fails. */
function reportSkipped(files: readonly RunnerTestFile[]): void {
  const skipped = Map.groupBy(
    files.flatMap((file) => skippedIn(file)),
    ({ missing }) => missing,
  );
  if (skipped.size === 0) return;
  const lines = [...skipped].map(([missing, tasks]) => {
    const tests = tasks.filter(({ type }) => type === "test").length;
    return `  ${tests} tests and ${tasks.length - tests} whole files: ${missing}\n`;
  });
  process.stderr.write(`\nSkipped:\n${lines.join("")}`);
  if (!process.env.CI) return;
  process.stderr.write("With CI set, all tests must run: this run has failed.\n");
  process.exitCode = 1;
}

interface Skipped extends Pick<RunnerTask, "type"> {
  readonly missing: string;
}

/** Returns skipped tests with their missing server, or the file if it has no tests. A suite has the reason of its `beforeAll`. */
function skippedIn(task: RunnerTask, inherited?: string): readonly Skipped[] {
  const { type, result, meta } = task;
  const missing = meta.missing ?? inherited;
  if (type === "suite" && task.tasks.length > 0) {
    return task.tasks.flatMap((child) => skippedIn(child, missing));
  }
  return result?.state === "skip" && missing !== undefined ? [{ type, missing }] : [];
}
