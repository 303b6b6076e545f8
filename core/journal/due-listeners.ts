import type { Journal } from "./journal.ts";
import type { StartedRun } from "./runs.ts";

function isDue(run: StartedRun): boolean {
  return run.kind === "parked" && run.wakeIn === 0;
}

/** Wraps a journal: calls that make runs due at once call its `dueListeners` afterwards. */
export function notifyingJournal(journal: Omit<Journal, "dueListeners">): Journal {
  const dueListeners = new Set<() => void>();
  const notifying =
    <A extends unknown[], R>(
      call: (...args: A) => Promise<R>,
      isDue: (result: R, ...args: A) => boolean,
    ) =>
    async (...args: A): Promise<R> => {
      const result = await call(...args);
      if (isDue(result, ...args)) for (const notify of dueListeners) notify();
      return result;
    };
  return {
    ...journal,
    dueListeners,
    start: notifying(journal.start, (runs) => runs.some(isDue)),
    startKeyed: notifying(journal.startKeyed, (_, __, { quiet = 0 }) => quiet === 0),
    park: notifying(journal.park, (_, __, { wakeIn }) => wakeIn === 0),
    // The end of a child wakes its parent. A run whose completion is refused is due again.
    finish: notifying(
      journal.finish,
      (answer, _, { parent }) => answer === "cancelled" || parent !== undefined,
    ),
    continueAsNew: notifying(journal.continueAsNew, () => true),
    signal: notifying(journal.signal, (answer) => answer === "delivered"),
    cancel: notifying(journal.cancel, (answer) => answer === "requested"),
    cancelChildren: notifying(journal.cancelChildren, ({ open }) => open.length > 0),
    reopen: notifying(journal.reopen, (isReopened) => isReopened),
    fork: notifying(journal.fork, (answer) => answer === "forked"),
    // Higher limits allow claims.
    setLimits: notifying(journal.setLimits, () => true),
    wakeWaiting: notifying(journal.wakeWaiting, (isWoken) => isWoken),
  };
}
