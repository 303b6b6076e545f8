import { etcdSuite } from "./etcd.ts";
import { functionsSuite } from "./functions.ts";
import type { Comparison, Contender } from "./measure.ts";
import { mysqlSuite } from "./mysql.ts";
import { redisSuite } from "./redis.ts";
import { stepsSuite } from "./steps.ts";
import { zookeeperSuite } from "./zookeeper.ts";

/** Starts what it needs, and says what to measure. */
export type Suite = (onProgress: (step: string) => void) => Promise<{
  /** What was measured on. */
  readonly server: string;

  /** What is missing, and why. */
  readonly notes?: readonly string[];

  /** What was counted, and not timed, by name. */
  readonly counts?: Readonly<Record<string, number>>;

  /** The most that some of them may be. */
  readonly limits?: Readonly<Record<string, number>>;
  readonly contenders: readonly Contender[];
  readonly comparisons: readonly Comparison[];
  close(): Promise<void>;
}>;

export const SUITES: Readonly<Record<string, Suite>> = {
  etcd: etcdSuite,
  functions: functionsSuite,
  mysql: mysqlSuite,
  steps: stepsSuite,
  redis: redisSuite,
  zookeeper: zookeeperSuite,
};
