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
  };
}

function descriptions<T>(servers: readonly { readonly about: T }[]): T[] {
  return servers.map(({ about }) => about);
}
