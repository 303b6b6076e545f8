import { describe, vi } from "vitest";
import type { StoreUnderTest } from "../support/under-test.ts";
import { describeCalls } from "./lock-calls.ts";
import { describeExclusion } from "./lock-exclusion.ts";
import { describeExpiry } from "./lock-expiry.ts";
import { describeFaults } from "./lock-faults.ts";
import { describeReleases } from "./lock-releases.ts";
import { LockSuite } from "./lock-suite.ts";
import { describeValidity, describeWaiting } from "./lock-time.ts";

/** How many tests run side by side in a file. While they wait for a ttl, they need no processor. */
const SIDE_BY_SIDE = 8;

/** Every property that a lock must have, on one store. No option turns a test off; the store's traits choose. */
export function describeLockStore(name: string, make: () => Promise<StoreUnderTest>): void {
  describe(`a lock on ${name}, one test at a time`, () => {
    const suite = new LockSuite(make);
    describeExclusion(suite);
    describeWaiting(suite);
    describeCalls(suite);
    describeReleases(suite);
  });

  vi.setConfig({ maxConcurrency: SIDE_BY_SIDE });
  // These tests wait for most of their time, also beside those of the next suite of the file if that is concurrent.
  describe.concurrent(`a lock on ${name}, tests side by side`, { timeout: 240_000 }, () => {
    const suite = new LockSuite(make);
    describeValidity(suite);
    describeExpiry(suite);
    describeFaults(suite);
  });
}
