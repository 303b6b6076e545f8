import { memoryJournal } from "../../core/stores/memory/journal.ts";
import { memoryLocks, newMemory } from "../../core/stores/memory/locks.ts";
import { describeSteps } from "../conformance/steps.ts";

describeSteps("memory", async () => {
  const memory = newMemory();
  const journal = memoryJournal();
  const close = async () => {};
  return {
    open: () => ({ journal: { ...journal, close }, locks: memoryLocks({ memory }) }),
    close: () => journal.close(),
  };
});
