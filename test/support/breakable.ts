import { UnknownOutcomeError } from "../../core/lock/errors.ts";
import type { Claims } from "../../core/lock/polling.ts";

/** Ways to break the wire between a client and its store. */
export interface Wire {
  /** No request and no answer gets through, and nobody is told. */
  cut(): void;
  mend(): void;

  /** The connections that exist go silent, and neither end is told; new ones work. */
  blackhole(): void;

  /** The next request is carried out, but its answer does not arrive. */
  loseNextAnswer(): void;
}

/** A wire in front of a store that has none of its own. */
export function breakable(claims: Claims): { readonly claims: Claims; readonly wire: Wire } {
  let isCut = false;
  let losesNext = false;
  let hangsNext = false;
  const over = async <T>(signal: AbortSignal, call: () => Promise<T>): Promise<T> => {
    const hangs = isCut || hangsNext;
    hangsNext = false;
    if (hangs) await aborted(signal);
    const answer = await call();
    if (!losesNext) return answer;
    losesNext = false;
    throw new UnknownOutcomeError("the wire", "a request was carried out");
  };
  return {
    claims: {
      ...claims,
      claim: (claim, signal) => over(signal, () => claims.claim(claim, signal)),
      renew: (names, owner, ttl, signal) =>
        over(signal, () => claims.renew(names, owner, ttl, signal)),
      drop: (names, owner, signal) => over(signal, () => claims.drop(names, owner, signal)),
    },
    wire: {
      cut: () => {
        isCut = true;
      },
      mend: () => {
        isCut = false;
      },
      // There is no connection here: the next call goes the way of the last one on a dead one.
      blackhole: () => {
        hangsNext = true;
      },
      loseNextAnswer: () => {
        losesNext = true;
      },
    },
  };
}

function aborted(signal: AbortSignal): Promise<never> {
  return new Promise((_, reject) => {
    const fail = () => reject(new UnknownOutcomeError("the wire", "a request was carried out"));
    if (signal.aborted) fail();
    signal.addEventListener("abort", fail, { once: true });
  });
}
