import type { TestedMutant } from "../mutant.ts";
import { DYNAMODB } from "./dynamodb.ts";
import { ENTITIES } from "./entities.ts";
import { ETCD } from "./etcd.ts";
import { HANDLERS } from "./handlers.ts";
import { INVENTORY } from "./inventory.ts";
import { JOURNALS } from "./journal.ts";
import { LOCK } from "./lock.ts";
import { MEMORY } from "./memory.ts";
import { REDIS } from "./redis.ts";
import { REDLOCK } from "./redlock.ts";
import { SQL } from "./sql.ts";
import { STEPS_ROOM } from "./steps.ts";
import { ZOOKEEPER } from "./zookeeper.ts";

/** The mutants by what they break. */
export const CATALOGUE: Readonly<Record<string, readonly TestedMutant[]>> = {
  locks: LOCK,
  stock: INVENTORY,
  journal: JOURNALS,
  steps: STEPS_ROOM,
  entities: ENTITIES,
  handlers: HANDLERS,
  memory: MEMORY,
  "SQL stores": SQL,
  Redis: REDIS,
  etcd: ETCD,
  ZooKeeper: ZOOKEEPER,
  Redlock: REDLOCK,
  DynamoDB: DYNAMODB,
};
