import { inject, type RunnerTestFile, type RunnerTestSuite, TestRunner } from "vitest";
import { type Missing, missingIn, unusable } from "./missing.ts";

declare module "vitest" {
  interface TaskMeta {
    /** The reason why the test, or the suite with all its tests, was skipped. */
    missing?: string;
  }
}

const SERVERS = [
  "sqlServers",
  "postgresServers",
  "etcdServers",
  "redisServers",
  "zookeeperServers",
  "dynamodbServers",
] as const;

/** Vitest's runner, except that a test of a missing server or program is skipped instead of failed. */
export default class SkippingRunner extends TestRunner {
  override onCollectStart(...args: Parameters<TestRunner["onCollectStart"]>): void {
    super.onCollectStart(...args);
    for (const kind of SERVERS) replaceMissing(inject(kind) ?? []);
  }

  /** Some files use their servers before any test runs. The number of their skipped tests is unknown. */
  onCollected(files: readonly RunnerTestFile[] = []): void {
    for (const file of files.filter(noteMissing)) {
      file.mode = "skip";
      delete file.result;
      this.config.passWithNoTests = true;
    }
  }

  /** Runs after the test's hooks and before its state is reported. */
  override async onAfterRetryTask(
    ...args: Parameters<TestRunner["onAfterRetryTask"]>
  ): Promise<void> {
    await super.onAfterRetryTask(...args);
    const [test] = args;
    if (test.result && noteMissing(test)) {
      test.result = { ...test.result, state: "skip" };
    }
  }

  /** If `beforeAll` has failed, the tests of the suite are marked as skipped before this call. */
  override async onAfterRunSuite(suite: RunnerTestSuite): Promise<void> {
    if (noteMissing(suite)) suite.result = { state: "pass" };
    await super.onAfterRunSuite(suite);
  }
}

/** Replaces missing servers in place: all tests of a file share the array. */
function replaceMissing(servers: (object & Partial<Missing>)[]): void {
  for (const [i, server] of servers.entries()) {
    if (server.missing !== undefined) servers[i] = unusable(server, server.missing);
  }
}

/** Whether the task has failed because a server is not installed. */
function noteMissing(task: Pick<RunnerTestSuite, "result" | "meta">): boolean {
  const missing = task.result?.errors?.map(missingIn).find((each) => each !== undefined);
  if (missing === undefined) return false;
  task.meta.missing = missing;
  return true;
}
