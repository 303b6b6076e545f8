import { UnknownOutcomeError } from "../../lock/errors.ts";
import { insist } from "../../lock/insist.ts";
import type { Input, Reply, Script } from "../../redis/redis.ts";
import type { Place } from "./place.ts";

interface Writing {
  /** What is not known after it has failed. */
  readonly what: string;
  readonly script: Script;
  readonly input: Omit<Input, "signal">;
  readonly signal?: AbortSignal | undefined;
}

/** How a script has ended, and what it says to that. Only "done" has done what it is for. */
export type Ending = readonly [status: string, ...rest: readonly string[]];

/**
 * Runs a script that may be repeated until it has answered.
 *
 * Rejects with an UnknownOutcomeError, too, when it is done, and too few replicas have said so in time.
 */
export async function settle(place: Place, writing: Writing): Promise<Ending> {
  const { redis, replicas } = place;
  const { what, script, input, signal } = writing;
  const { reply, confirmed } = await insist(redis.address, what, signal, (limit) =>
    run(place, script, { ...input, signal: limit }),
  );
  const ending = reply as Ending;
  if (replicas === undefined || confirmed >= replicas.count || ending[0] !== "done") return ending;
  const there = `${what} at ${replicas.count} replicas: ${confirmed} have said so in time`;
  throw new UnknownOutcomeError(redis.address, there);
}

/** A script that is repeated waits for replicas as well, for all that was written before it. */
async function run(
  { redis, replicas }: Place,
  script: Script,
  input: Input,
): Promise<{ readonly reply: Reply; readonly confirmed: number }> {
  if (replicas !== undefined) return redis.runOnReplicas(script, input, replicas);
  return { reply: await redis.run(script, input), confirmed: 0 };
}
