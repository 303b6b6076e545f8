import type { JournalUnderTest } from "../support/journal-under-test.ts";
export function describeTransactions(_: () => JournalUnderTest): void {}
