import { after, afterAnswers, type Millis } from "./time.ts";

/** A signal with listeners on its parents, which disposal removes. */
export interface Scope extends Disposable {
  readonly signal: AbortSignal;
}

/**
 * Returns a signal that aborts with the first of `signals`, and with the same reason.
 *
 * Not AbortSignal.any: a long-lived parent keeps every signal ever derived from it. Disposal of this signal removes its
 * listeners from the parents.
 */
export function follow(...signals: readonly (AbortSignal | undefined)[]): Scope {
  const parents = signals.filter((signal) => signal !== undefined);
  const [only] = parents;
  if (only && parents.length === 1) return { signal: only, [Symbol.dispose]: () => {} };
  const controller = new AbortController();
  return { signal: controller.signal, [Symbol.dispose]: link(parents, controller) };
}

/** Aborts the controller with the first of `parents`, until the returned function is called. */
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
 * Returns a signal that aborts after `span` milliseconds with the result of `reason`, or with the first of `parents`.
 *
 * Not AbortSignal.timeout: a virtual clock moves setTimeout only. An infinite span never aborts. `reason` is called when
 * the span is over: most deadlines are not reached, and the stack of an error costs time.
 */
export function deadline(
  span: Millis,
  reason: () => unknown,
  ...parents: readonly (AbortSignal | undefined)[]
): Scope {
  const controller = new AbortController();
  const abort = () => controller.abort(reason());
  const cancel = span === Number.POSITIVE_INFINITY ? () => {} : afterAnswers(span, abort);
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

/** Settles as the promise does, or rejects with the signal's reason if it aborts first. The work goes on. */
export function race<T>(promise: Promise<T>, signal: AbortSignal): Promise<T> {
  return new Promise((resolve, reject) => {
    const onAbort = () => reject(signal.reason);
    const ignore = () => signal.removeEventListener("abort", onAbort);
    promise.then(resolve, reject);
    promise.then(ignore, ignore);
    // A promise that has settled already comes first.
    if (signal.aborted) queueMicrotask(onAbort);
    else signal.addEventListener("abort", onAbort, { once: true });
  });
}
