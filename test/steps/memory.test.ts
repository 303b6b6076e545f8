import { memoryJournal } from "../../core/journal/memory.ts";
import { memoryStore, newMemory } from "../../core/stores/memory/index.ts";
import { describeSteps } from "../conformance/steps.ts";

describeSteps("memory", async () => {
  const memory = newMemory();
  const journal = memoryJournal();
  const close = async () => {};
  return {
    open: () => ({ journal: { ...journal, close }, locks: memoryStore({ memory }) }),
    close: () => journal.close(),
  };
});
