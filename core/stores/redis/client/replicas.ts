import { checkWhole, LONGEST_SPAN } from "../../../lock/checks.ts";
import { type Duration, toMillis } from "../../../lock/duration.ts";
import type { Redis, Reply, Script, ScriptInput } from "./redis.ts";

export interface ReplicaOptions {
  readonly replicas?: number;
  readonly replicaTimeout?: Duration;
}

/** The replicas that must confirm each write. */
export interface ReplicatedWrites {
  readonly count: number;

  /** Runs a script, and resolves to how many replicas have confirmed it in time. */
  run(script: Script, input: ScriptInput): Promise<ReplicatedReply>;
}

interface ReplicatedReply {
  readonly reply: Reply;
  readonly confirmed: number;
}

/** Returns undefined when no replica must confirm. */
export function replicatedWrites(
  redis: Redis,
  { replicas = 0, replicaTimeout = 1_000 }: ReplicaOptions,
): ReplicatedWrites | undefined {
  checkWhole("replicas", replicas, 0, 1_000);
  const span = toMillis("replicaTimeout", replicaTimeout, 1, LONGEST_SPAN);
  if (replicas === 0) return undefined;
  const runOnReplicas = redis.runOnReplicas?.bind(redis);
  if (!runOnReplicas) throw new TypeError("a Redis over HTTP cannot wait for replicas");
  const awaited = { count: replicas, span };
  return { count: replicas, run: (script, input) => runOnReplicas(script, input, awaited) };
}
