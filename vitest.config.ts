import { join } from "node:path";
import { defineConfig } from "vitest/config";

/** What needs no server. */
const unit = [
  "test/layout.test.ts",
  "test/lock/**/*.test.ts",
  "test/database/sqlite.test.ts",
  "test/functions/{runs,timeline,worker}.test.ts",
  "test/etcd/{codec,gateway}.test.ts",
  "test/functions/{deploy,edge-bundle,environment,lambda,lambda-host,queue,queue-on-lambda,schedule,sqs}.test.ts",
  "test/functions/{bundle,document,http-handler}.test.ts",
  "test/infra/store-url.test.ts",
  "test/inventory/sqlite.test.ts",
  "test/journal/{memory,sqlite}.test.ts",
  "test/steps/{around,branches,corners,memory,points,sqlite,testing}.test.ts",
  "test/stores/{memory,sqlite}.test.ts",
  "test/telemetry/*.test.ts",
  "test/zookeeper/{names,pulse}.test.ts",
];

export default defineConfig({
  test: {
    projects: [
      { extends: true, test: { name: "unit", include: unit } },
      {
        extends: true,
        test: {
          name: "servers",
          include: ["test/**/*.test.ts"],
          exclude: unit,
          globalSetup: "test/support/servers.ts",
        },
      },
    ],
    setupFiles: "test/support/left-behind.ts",
    testTimeout: 120_000,
    hookTimeout: 120_000,
    // Many tests start processes of their own: this halves the time that one takes to start.
    env: { NODE_COMPILE_CACHE: join(import.meta.dirname, "node_modules/.cache/node") },
    // Most of them wait for a ttl to pass, or for another process.
    maxWorkers: 4,
  },
});
