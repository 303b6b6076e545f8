import { setTimeout as sleep } from "node:timers/promises";
import type { Journal } from "../../../core/journal/journal.ts";
import type { LockStore } from "../../../core/lock/lock.ts";
import type { RuntimeOptions } from "../../../core/steps/contract.ts";
import {
  type AnyWorkflow,
  createRuntime,
  type FinishedRun,
  type Runtime,
} from "../../../core/steps/index.ts";

/** A journal and locks under test. */
export interface StepsUnderTest {
  /** Opens further clients of the same journal and the same locks. */
  open(): { readonly journal: Journal; readonly locks: LockStore };
  close(): Promise<void>;
}

/** The helpers that the groups of the suite share. */
export interface StepsHarness {
  /** Makes a runtime with clients of its own, as another process has. */
  runtime(options?: Partial<RuntimeOptions>): Runtime;

  /** Executes the run until it has ended. */
  toEnd(runtime: Runtime, workflow: AnyWorkflow, id: string): Promise<FinishedRun<unknown>>;
  newId(): string;

  /** Reads the keys and outcomes of the run's records. */
  recordsOf(runtime: Runtime, id: string): Promise<readonly string[]>;
  openLocks(): LockStore;
}

/** `close` closes the clients of all runtimes. */
export function stepsHarness(
  under: () => StepsUnderTest,
): StepsHarness & { close(): Promise<void> } {
  const closing: (() => Promise<void>)[] = [];
  return {
    runtime(options = {}) {
      const { journal, locks } = under().open();
      closing.push(async () => {
        await locks.close();
        await journal.close();
      });
      return createRuntime({ journal, locks, inlineWait: 5, ...options });
    },
    async toEnd(runtime, workflow, id) {
      for (;;) {
        const outcome = await runtime.execute(workflow as never, { n: 1 } as never, { id });
        if (outcome.status !== "suspended" && outcome.status !== "busy") return outcome;
        const wait = outcome.status === "busy" ? outcome.retryIn : outcome.wakeIn;
        await sleep(Math.min(wait, 200));
      }
    },
    newId: () => `run-${crypto.randomUUID()}`,
    async recordsOf(runtime, id) {
      const { records = [] } = (await runtime.journal.show(id)) ?? {};
      return records.map(({ key, outcome }) => `${key} ${outcome}`);
    },
    openLocks: () => under().open().locks,
    async close() {
      for (const close of closing) await close();
    },
  };
}
