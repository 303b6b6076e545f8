/**
 * Whether the tests run on every version and cluster of a store, and not on one server of each kind, and repeat the faults
 * of long tests more often: `npm run test:all`.
 */
export const WHOLE_MATRIX = process.env.LOCKSTEP_TEST_ALL === "1";
