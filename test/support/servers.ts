import type { TestProject } from "vitest/node";
import { type EtcdServer, startEtcdServers } from "./etcd-servers.ts";
import { type RedisServer, startRedisServers } from "./redis-servers.ts";
import { type SqlServer, startSqlServers } from "./sql-servers.ts";

declare module "vitest" {
  export interface ProvidedContext {
    readonly sqlServers: readonly SqlServer[];
    readonly etcdServers: readonly EtcdServer[];
    readonly redisServers: readonly RedisServer[];
  }
}

/** Starts the servers that the tests need, installing what is missing, and stops them afterwards. */
export default async function setUp(project: TestProject): Promise<() => Promise<void>> {
  const say = (step: string) => process.stderr.write(`servers: ${step}\n`);
  const [sql, etcd, redis] = await Promise.all([
    startSqlServers(say),
    startEtcdServers(say),
    startRedisServers(say),
  ]);
  project.provide("sqlServers", sql.servers);
  project.provide("etcdServers", etcd.servers);
  project.provide("redisServers", redis.servers);
  return async () => {
    await Promise.all([sql.stop(), etcd.stop(), redis.stop()]);
  };
}
