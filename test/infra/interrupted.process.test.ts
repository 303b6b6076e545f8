import { existsSync } from "node:fs";
import { dirname } from "node:path";
import { expect, test } from "vitest";
import { isRunningOn } from "../../infra/servers/processes.ts";
import { runNode, runScript } from "../support/script.ts";
import { until } from "../support/until.ts";

test.each(["SIGTERM", "SIGINT", "SIGKILL"] as const)(
  "tests ended by %s leave no process and no folder behind",
  async (signal) => {
    using tests = runScript("begin");
    const { file, pid } = JSON.parse(await tests.line());
    const folder = dirname(file);
    expect([isRunningOn(pid, "sleep"), existsSync(folder)]).toEqual([true, true]);
    tests.child.kill(signal);
    await until(() => !isRunningOn(pid, "sleep") && !existsSync(folder));
  },
);

test("the folder of a killed run is removed, also while its workers' folders within are", async () => {
  using run = runScript("begin");
  const folder = dirname(JSON.parse(await run.line()).file);
  const env = { ...process.env, TMPDIR: folder };
  using worker = runNode(["test/scripts/begin.ts", "5000"], { env });
  await worker.line();
  for (const { child } of [run, worker]) child.kill("SIGKILL");
  await until(() => !existsSync(folder));
});
