const tests = process.env.LOCKSTEP_TESTS;

/**
 * Whether the tests run on every version and cluster of a store, and not on one server of each kind, and repeat the faults
 * of long tests more often: `npm run test:long`.
 */
export const EVERY_VERSION = tests === "long";

/** Whether tests of one thing on many stores, or with many tools, run on all of them: `npm run test:all`. */
export const WHOLE_MATRIX = tests === "all" || EVERY_VERSION;

/** The stores or tools of a test: all, or the first few of them. */
export function cells<T>(all: readonly T[], few = 1): readonly T[] {
  return WHOLE_MATRIX ? all : all.slice(0, few);
}
