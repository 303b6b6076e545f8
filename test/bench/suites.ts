import { dynamodbSuite } from "./dynamodb.ts";
import { etcdSuite } from "./etcd.ts";
import { functionsSuite } from "./functions.ts";
import { mariadbSuite, mysqlSuite } from "./mysql.ts";
import { postgresSuite } from "./postgres.ts";
import { redisSuite } from "./redis.ts";
import { sqliteSuite } from "./sqlite.ts";
import { stepsSuite } from "./steps.ts";
import type { Suite } from "./suite.ts";
import { zookeeperSuite } from "./zookeeper.ts";

export const SUITES: Readonly<Record<string, Suite>> = {
  dynamodb: dynamodbSuite,
  etcd: etcdSuite,
  functions: functionsSuite,
  mariadb: mariadbSuite,
  mysql: mysqlSuite,
  postgres: postgresSuite,
  sqlite: sqliteSuite,
  steps: stepsSuite,
  redis: redisSuite,
  zookeeper: zookeeperSuite,
};
