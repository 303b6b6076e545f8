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
