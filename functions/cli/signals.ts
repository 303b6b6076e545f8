const SIGNALS = ["SIGINT", "SIGTERM", "SIGHUP"] as const;

/** Calls `handle` instead of ending the process on a signal, until disposed. */
export function onSignal(handle: (signal: NodeJS.Signals) => void): Disposable {
  for (const signal of SIGNALS) process.on(signal, handle);
  return {
    [Symbol.dispose]: () => {
      for (const signal of SIGNALS) process.off(signal, handle);
    },
  };
}

/** Resolves to the first signal. Keeps the process alive until then, or until `until` aborts. */
export function nextSignal(until: AbortSignal): Promise<NodeJS.Signals | undefined> {
  return new Promise((resolve) => {
    const alive = setInterval(() => {}, 2 ** 30);
    const finish = (signal?: NodeJS.Signals) => {
      clearInterval(alive);
      listening[Symbol.dispose]();
      resolve(signal);
    };
    const listening = onSignal(finish);
    if (until.aborted) finish();
    until.addEventListener("abort", () => finish(), { once: true });
  });
}

/** A supervisor may send a signal to a process and to its parent, which passes it on: both count as one. */
const SAME = 250;

/** How a process is told to end: once, and then without delay. */
export interface TwoSignals extends Disposable {
  readonly first: AbortSignal;
  readonly second: AbortSignal;

  /** What the first one was; undefined before. */
  readonly name: NodeJS.Signals | undefined;
}

/** Listens to signals instead of ending the process, until disposed. */
export function onTwoSignals(): TwoSignals {
  const [first, second] = [new AbortController(), new AbortController()];
  let name: NodeJS.Signals | undefined;
  let toldAt = 0;
  const listening = onSignal((signal) => {
    if (name !== undefined && performance.now() - toldAt < SAME) return;
    toldAt = performance.now();
    (name === undefined ? first : second).abort(new Error(`told to end by ${signal}`));
    name ??= signal;
  });
  return {
    first: first.signal,
    second: second.signal,
    get name() {
      return name;
    },
    [Symbol.dispose]: () => listening[Symbol.dispose](),
  };
}
