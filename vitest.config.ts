import { join } from "node:path";
import { defineConfig } from "vitest/config";
import LongestFirst from "./test/support/longest-first.ts";
import { WHOLE_MATRIX } from "./test/support/matrix.ts";

/** Files with "all" in their names run in `npm run test:all`, and when the command line names one. */
const isNamed = process.argv.some((word) => word.includes(".all."));
const exclude = WHOLE_MATRIX || isNamed ? [] : ["test/**/*.all.*.test.ts"];

/** For tests that start processes on a busy machine. */
const LONG = 240_000;

export default defineConfig({
  test: {
    // The file name says what a test needs: nothing, processes of its own, or servers.
    projects: [
      {
        extends: true,
        test: {
          name: "unit",
          include: ["test/**/*.test.ts"],
          exclude: ["**/node_modules/**", "test/**/*.{process,server}.test.ts"],
          testTimeout: 20_000,
          // A new process for each file would take half of the time. What a file changes, its tests take back.
          isolate: false,
        },
      },
      {
        extends: true,
        test: {
          name: "processes",
          include: ["test/**/*.process.test.ts"],
          exclude,
          isolate: false,
          runner: "./test/support/runner.ts",
        },
      },
      {
        extends: true,
        test: {
          name: "servers",
          include: ["test/**/*.server.test.ts"],
          exclude,
          isolate: false,
          globalSetup: "test/support/servers.ts",
          runner: "./test/support/runner.ts",
        },
      },
    ],
    globalSetup: ["test/support/temporary-folder.ts", "test/support/skipped.ts"],
    setupFiles: "test/support/left-behind.ts",
    testTimeout: LONG,
    hookTimeout: LONG,
    env: {
      // Halves the start of the many processes that tests start.
      NODE_COMPILE_CACHE: join(import.meta.dirname, "node_modules/.cache/node"),
      // Keeps the default store of the user who runs the tests out of them.
      XDG_STATE_HOME: join(import.meta.dirname, "node_modules/.cache/state"),
    },
    // Most tests wait for a ttl to pass, or for another process: six workers keep two cores busy, and three those of test:all.
    maxWorkers: WHOLE_MATRIX ? 3 : 6,
    // Fewer tests of one file at once leave each the time that it expects.
    maxConcurrency: WHOLE_MATRIX ? 3 : 5,
    sequence: { sequencer: LongestFirst },
  },
});
