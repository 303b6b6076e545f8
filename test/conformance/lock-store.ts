import { afterAll, afterEach, describe } from "vitest";
import type { StoreUnderTest } from "../support/under-test.ts";
import { describeCalls } from "./lock-calls.ts";
import { describeExclusion } from "./lock-exclusion.ts";
import { describeFaults } from "./lock-faults.ts";
import { describeReleases } from "./lock-releases.ts";
import { LockSuite } from "./lock-suite.ts";
import { describeValidity, describeWaiting } from "./lock-time.ts";

/** Every property that a lock must have, on one store. No option turns a test off; the store's traits choose. */
export function describeLockStore(name: string, make: () => Promise<StoreUnderTest>): void {
  describe(`a lock on ${name}`, () => {
    const suite = new LockSuite(make);
    describe("one test at a time", () => {
      afterEach(suite.closeClients);
      describeExclusion(suite);
      describeWaiting(suite);
      describeCalls(suite);
      describeReleases(suite);
    });
    // These tests wait for most of their time.
    describe.concurrent("tests side by side", { timeout: 240_000 }, () => {
      afterAll(suite.closeClients);
      describeValidity(suite);
      describeFaults(suite);
    });
  });
}
