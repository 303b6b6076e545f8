import { after, type Millis } from "./time.ts";

/** A signal that is let go of when the work it guards has ended. */
export interface Scope extends Disposable {
  readonly signal: AbortSignal;
}

/**
 * A signal that aborts with the reason of whichever of `signals` aborts first.
 *
 * Not AbortSignal.any: a long-lived parent keeps every signal ever derived from it. Disposing this one
 * leaves nothing behind on the parents.
 */
export function follow(...signals: readonly (AbortSignal | undefined)[]): Scope {
  const parents = signals.filter((signal) => signal !== undefined);
  const [only] = parents;
  if (only && parents.length === 1) return { signal: only, [Symbol.dispose]: () => {} };
  const controller = new AbortController();
  return { signal: controller.signal, [Symbol.dispose]: link(parents, controller) };
}

/** The controller aborts as the first of `parents` does, until the returned function is called. */
export function link(
  parents: readonly (AbortSignal | undefined)[],
  controller: AbortController,
): () => void {
  const stops = parents.map((parent) => {
    const onAbort = () => controller.abort(parent?.reason);
    if (parent?.aborted) onAbort();
    parent?.addEventListener("abort", onAbort, { once: true });
    return () => parent?.removeEventListener("abort", onAbort);
  });
  return () => {
    for (const stop of stops) stop();
  };
}

/**
 * A signal that aborts with what `reason` makes after `span` milliseconds, or as one of `parents` does.
 *
 * Not AbortSignal.timeout: a virtual clock moves setTimeout only. An infinite span never aborts. The reason is
 * made when it is needed: most deadlines are not reached, and the stack of an error takes its time.
 */
export function deadline(
  span: Millis,
  reason: () => unknown,
  ...parents: readonly (AbortSignal | undefined)[]
): Scope {
  const controller = new AbortController();
  const cancel =
    span === Number.POSITIVE_INFINITY ? () => {} : after(span, () => controller.abort(reason()));
  const unlink = link(parents, controller);
  const dispose = () => {
    cancel();
    unlink();
  };
  return { signal: controller.signal, [Symbol.dispose]: dispose };
}

export function noAnswer(): Error {
  return new Error("no answer in time");
}

/** Resolves after `span` milliseconds; rejects with the signal's reason if it aborts first. */
export function sleep(span: Millis, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    if (signal?.aborted) return reject(signal.reason);
    const onAbort = () => {
      cancel();
      reject(signal?.reason);
    };
    const cancel = after(span, () => {
      signal?.removeEventListener("abort", onAbort);
      resolve();
    });
    signal?.addEventListener("abort", onAbort, { once: true });
  });
}

/** The promise's outcome, or the signal's reason if it aborts first. The promise itself runs on. */
export async function race<T>(promise: Promise<T>, signal: AbortSignal): Promise<T> {
  const { promise: aborted, reject } = Promise.withResolvers<never>();
  const onAbort = () => reject(signal.reason);
  if (signal.aborted) onAbort();
  signal.addEventListener("abort", onAbort, { once: true });
  try {
    return await Promise.race([promise, aborted]);
  } finally {
    signal.removeEventListener("abort", onAbort);
  }
}
