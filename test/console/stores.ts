import { inject, type TestContext } from "vitest";
import { EVERY_VERSION } from "../support/matrix.ts";
import { RedisCluster } from "../support/redis-group.ts";
import {
  dynamodbUnderTest,
  etcdUnderTest,
  redisUnderTest,
  type StoreUnderTest,
  sqliteUnderTest,
  sqlServerUnderTest,
  temporaryFile,
} from "../support/under-test.ts";

type Stores = Readonly<Record<string, () => Promise<StoreUnderTest>>>;

export const WITH_JOURNAL: Stores = {
  sqlite: sqliteUnderTest,
  mysql: () => sqlServerUnderTest(first(inject("sqlServers"))),
  postgres: () => sqlServerUnderTest(first(inject("postgresServers"))),
};

export const STORES: Stores = {
  ...WITH_JOURNAL,
  redis: redisUnderTest,
  etcd: () => etcdUnderTest(first(inject("etcdServers"))),
  dynamodb: dynamodbUnderTest,
  ...(EVERY_VERSION && { "redis-cluster": clusterUnderTest }),
};

async function clusterUnderTest(): Promise<StoreUnderTest> {
  const cluster = await RedisCluster.start();
  const underTest = await cluster.underTest("redis-cluster");
  const close = () => underTest.close().finally(() => cluster[Symbol.asyncDispose]());
  return { ...underTest, close };
}

/** Returns the URL of a store that is closed when the test ends. */
export async function urlOf({ onTestFinished }: TestContext, stores: Stores, name: string) {
  const underTest = await stores[name]?.();
  onTestFinished(() => underTest?.close());
  return underTest?.url ?? "";
}

/** Returns the URL of a new SQLite store that is removed when the test ends. */
export async function newStore({ onTestFinished }: TestContext): Promise<string> {
  const { file, remove } = await temporaryFile();
  onTestFinished(remove);
  return `sqlite:${file}`;
}

/** Returns the first server of a kind. */
export function first<T>([server]: readonly T[]): T {
  if (server === undefined) throw new Error("the test run has started no such server");
  return server;
}
