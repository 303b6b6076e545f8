import { etcdSuite } from "./etcd.ts";
import type { Comparison, Contender } from "./measure.ts";
import { mysqlSuite } from "./mysql.ts";
import { redisSuite } from "./redis.ts";
import { stepsSuite } from "./steps.ts";

/** Starts what it needs, and says what to measure. */
export type Suite = (onProgress: (step: string) => void) => Promise<{
  /** What was measured on. */
  readonly server: string;

  /** What is missing, and why. */
  readonly notes?: readonly string[];

  /** What was counted, and not timed, by name. */
  readonly counts?: Readonly<Record<string, number>>;
  readonly contenders: readonly Contender[];
  readonly comparisons: readonly Comparison[];
  close(): Promise<void>;
}>;

export const SUITES: Readonly<Record<string, Suite>> = {
  etcd: etcdSuite,
  mysql: mysqlSuite,
  steps: stepsSuite,
  redis: redisSuite,
};
