import { keepProcessAlive } from "../../../core/lock/time.ts";

/** The signals whose default action ends the process and which can be handled. */
export const TERMINATING: readonly NodeJS.Signals[] = [
  "SIGINT",
  "SIGTERM",
  "SIGHUP",
  "SIGQUIT",
  "SIGUSR1",
  "SIGUSR2",
];

/** Calls `handle` in place of the signals' default action, until disposed. */
export function onSignal(
  handle: (signal: NodeJS.Signals) => void,
  signals: readonly NodeJS.Signals[] = TERMINATING,
): Disposable {
  for (const signal of signals) process.on(signal, handle);
  return {
    [Symbol.dispose]: () => {
      for (const signal of signals) process.off(signal, handle);
    },
  };
}

/** How long the kernel may take to stop this process, in milliseconds. */
const STOP_TIME = 100;

/**
 * Calls `suspending` before SIGTSTP stops this process and `resumed` after this process continues, until disposed.
 *
 * The kernel does not stop a process that no shell could continue.
 */
export function onSuspend(suspending: () => void, resumed: () => void): Disposable {
  let pause: NodeJS.Timeout | undefined;
  const handle = () => {
    suspending();
    process.kill(process.pid, "SIGTSTP");
    pause = setTimeout(() => {
      resumed();
      process.once("SIGTSTP", handle);
    }, STOP_TIME);
  };
  process.once("SIGTSTP", handle);
  return {
    [Symbol.dispose]: () => {
      clearTimeout(pause);
      process.off("SIGTSTP", handle);
    },
  };
}

/** Resolves to the first signal. Keeps the process alive until then, or until `until` aborts. */
export function nextSignal(until: AbortSignal): Promise<NodeJS.Signals | undefined> {
  return new Promise((resolve) => {
    const letExit = keepProcessAlive();
    const finish = (signal?: NodeJS.Signals) => {
      letExit();
      listening[Symbol.dispose]();
      resolve(signal);
    };
    const listening = onSignal(finish);
    if (until.aborted) finish();
    until.addEventListener("abort", () => finish(), { once: true });
  });
}

/** A repeated signal within this time is a duplicate, in milliseconds: a supervisor may signal a parent, which forwards. */
const DUPLICATE_WINDOW = 250;

/** Requests to end this process. */
export interface ShutdownSignals extends Disposable {
  /** Aborts with the first signal. */
  readonly requested: AbortSignal;

  /** Aborts with the second signal: the process ends without delay. */
  readonly forced: AbortSignal;

  /** The name of the first signal; undefined before it. */
  readonly signal: NodeJS.Signals | undefined;
}

/** Handles signals in place of their default action, until disposed. */
export function listenForShutdown(): ShutdownSignals {
  const [requested, forced] = [new AbortController(), new AbortController()];
  let name: NodeJS.Signals | undefined;
  let receivedAt = 0;
  const listening = onSignal((signal) => {
    if (name !== undefined && performance.now() - receivedAt < DUPLICATE_WINDOW) return;
    receivedAt = performance.now();
    (name === undefined ? requested : forced).abort(new Error(`received ${signal}`));
    name ??= signal;
  });
  return {
    requested: requested.signal,
    forced: forced.signal,
    get signal() {
      return name;
    },
    [Symbol.dispose]: () => listening[Symbol.dispose](),
  };
}
