import { StoreUnavailableError, UnknownOutcomeError } from "../../core/lock/errors.ts";
import type { Redis } from "../../core/redis/redis.ts";
import { pause } from "./until.ts";

/**
 * What may happen to a script. `answer-lost`: carried out. `request-lost`: not carried out. `late`: carried out a
 * while after the caller was told that nobody knows. `refused`: certainly not carried out.
 */
export type Fault = "answer-lost" | "request-lost" | "late" | "refused";

export const FAULTS: readonly Fault[] = ["answer-lost", "request-lost", "late", "refused"];

/** By how much a late script is late, in milliseconds. */
export const LATE = 300;

/** A client of which scripts go wrong as `decide` tells, by their number from 1. */
export function faulty(inner: Redis, decide: (n: number) => Fault | undefined): Redis {
  let n = 0;
  return {
    address: inner.address,
    runOnReplicas: inner.runOnReplicas.bind(inner),
    call: inner.call.bind(inner),
    subscribe: inner.subscribe.bind(inner),
    close: inner.close.bind(inner),
    [Symbol.asyncDispose]: inner.close.bind(inner),
    async run(script, input) {
      n += 1;
      const fault = decide(n);
      if (fault === undefined) return inner.run(script, input);
      const { signal: _, ...later } = input;
      if (fault === "answer-lost") await inner.run(script, input);
      if (fault === "late") void pause(LATE).then(() => inner.run(script, later).catch(() => {}));
      throw fault === "refused"
        ? new StoreUnavailableError("a faulty redis", "as told")
        : new UnknownOutcomeError("a faulty redis", "a script was run");
    },
  };
}
