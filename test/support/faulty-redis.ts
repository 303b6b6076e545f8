import { StoreUnavailableError, UnknownOutcomeError } from "../../core/lock/errors.ts";
import type { Redis, Script } from "../../core/stores/redis/client/redis.ts";

/**
 * The fault of a script. `answer-lost`: executed. `request-lost`: not executed. `late`: executed by \`deliver\`, after the
 * caller got an unknown outcome. `refused`: certainly not executed.
 */
export type Fault = "answer-lost" | "request-lost" | "late" | "refused";

export const FAULTS: readonly Fault[] = ["answer-lost", "request-lost", "late", "refused"];

export interface FaultyRedis extends Required<Redis> {
  /** Executes the late scripts. */
  deliver(): Promise<void>;
}

/** Returns a client whose scripts fail as `decide` says, by their number from 1 or by the script. */
export function faulty(
  inner: Required<Redis>,
  decide: (n: number, script: Script) => Fault | undefined,
): FaultyRedis {
  let n = 0;
  const late: (() => Promise<unknown>)[] = [];
  return {
    address: inner.address,
    connection: undefined,
    runOnReplicas: inner.runOnReplicas.bind(inner),
    call: inner.call.bind(inner),
    subscribe: inner.subscribe.bind(inner),
    close: inner.close.bind(inner),
    [Symbol.asyncDispose]: inner.close.bind(inner),
    deliver: async () => void (await Promise.allSettled(late.splice(0).map((run) => run()))),
    async run(script, input) {
      n += 1;
      const fault = decide(n, script);
      if (fault === undefined) return inner.run(script, input);
      const { signal: _, ...later } = input;
      if (fault === "answer-lost") await inner.run(script, input);
      if (fault === "late") late.push(() => inner.run(script, later));
      throw fault === "refused"
        ? new StoreUnavailableError("a faulty redis", "an injected fault")
        : new UnknownOutcomeError("a faulty redis", "a script was run");
    },
  };
}
