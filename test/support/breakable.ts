import type { Claims } from "../../core/lock/claims.ts";
import { UnknownOutcomeError } from "../../core/lock/errors.ts";

/** The faults of the connection between a client and its store. */
export interface Wire {
  /** Drops all requests and answers silently. */
  cut(): void;
  mend(): void;

  /** Drops all data of the existing connections silently; new connections work. */
  blackhole(): void;

  /** Holds back the next request; its connection goes silent. */
  delayNextRequest(): void;

  /** Delivers the request that was held back, also after the client has given up. Returns whether a request was held back. */
  deliver(): boolean;

  /** Executes the next request, and drops its answer. */
  loseNextAnswer(): void;

  /** Executes the next request, and answers with an error that proves nothing, as a proxy may. */
  failNextAnswer(): void;
}

/** Puts a wire in front of a store without a network. */
export function breakable(claims: Claims): { readonly claims: Claims; readonly wire: Wire } {
  let isCut = false;
  let losesNext = false;
  let hangsNext = false;
  let delaysNext = false;
  let late: (() => Promise<unknown>) | undefined;
  const loseNextAnswer = () => {
    losesNext = true;
  };
  const over = async <T>(signal: AbortSignal, call: () => Promise<T>): Promise<T> => {
    if (delaysNext) {
      delaysNext = false;
      late = call;
      await aborted(signal);
    }
    const hangs = isCut || hangsNext;
    hangsNext = false;
    if (hangs) await aborted(signal);
    const answer = await call();
    if (!losesNext) return answer;
    losesNext = false;
    throw new UnknownOutcomeError("the wire", "a request was executed");
  };
  return {
    claims: {
      ...claims,
      claim: (claim, signal) => over(signal, () => claims.claim(claim, signal)),
      renew: (names, owner, ttl, signal, next) =>
        over(signal, () => claims.renew(names, owner, ttl, signal, next)),
      drop: (names, owner, signal) => over(signal, () => claims.drop(names, owner, signal)),
    },
    wire: {
      cut: () => {
        isCut = true;
      },
      mend: () => {
        isCut = false;
      },
      // Without connections, the next call fails like one over a dead connection.
      blackhole: () => {
        hangsNext = true;
      },
      delayNextRequest: () => {
        delaysNext = true;
      },
      deliver: () => {
        const call = late;
        late = undefined;
        void call?.().catch(() => {});
        return call !== undefined;
      },
      loseNextAnswer,
      failNextAnswer: loseNextAnswer,
    },
  };
}

function aborted(signal: AbortSignal): Promise<never> {
  return new Promise((_, reject) => {
    const fail = () => reject(new UnknownOutcomeError("the wire", "a request was executed"));
    if (signal.aborted) fail();
    signal.addEventListener("abort", fail, { once: true });
  });
}
