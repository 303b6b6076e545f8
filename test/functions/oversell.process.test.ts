import { execFileSync } from "node:child_process";
import { expect, onTestFinished, test } from "vitest";
import { onTerminal } from "../support/cli.ts";
import { runCli } from "../support/script.ts";
import { temporaryFile } from "../support/under-test.ts";
import { until } from "../support/until.ts";

interface Process {
  readonly pid: number;
  readonly parent: number;

  /** Begins with a T while the process is stopped. */
  readonly state: string;
}

function processes(): readonly Process[] {
  const output = execFileSync("ps", ["-A", "-o", "pid=,ppid=,stat="], { encoding: "utf8" });
  return output
    .trim()
    .split("\n")
    .map((line) => line.trim().split(/\s+/))
    .map(([pid, parent, state = ""]) => ({ pid: Number(pid), parent: Number(parent), state }));
}

test.each([
  ["SIGINT", 130],
  ["SIGTERM", 143],
  ["SIGHUP", 129],
  ["SIGKILL", "SIGKILL"],
] as const)("a replay that %s ends leaves no frozen worker behind", async (signal, status) => {
  const { file, remove } = await temporaryFile();
  onTestFinished(remove);
  const faults = ["--slow", "0", "--kills", "0", "--pause", "1h"];
  const only = ["--store", `sqlite:${file}`, "--strategy", "renewed"];
  using replay = runCli("oversell", ...only, ...faults);
  const isFrozen = ({ state }: Process) => state.startsWith("T");
  const frozen = await until(() =>
    processes().find((one) => one.parent === replay.child.pid && isFrozen(one)),
  );
  const left = () => processes().filter((one) => one.pid === frozen.pid && isFrozen(one));
  onTestFinished(() => {
    for (const { pid } of left()) process.kill(pid, "SIGKILL");
  });
  replay.child.kill(signal);
  expect(await replay.ended).toBe(status);
  await until(() => left().length === 0, 30_000);
});

test("on a terminal, the progress of a replay shows no password, and an interruption shows the cursor again", async () => {
  const terminal = onTerminal("oversell", "--store", "mysql://shop:s3cret@127.0.0.1:1/shop");
  await until(() => terminal.shown().includes(": opens"));
  terminal.type("\u0003");
  expect(await terminal.status).toBe(130);
  expect(terminal.shown()).toContain("mysql://127.0.0.1:1/shop: opens");
  expect(terminal.shown()).not.toContain("s3cret");
  const [hidden, shown] = ["\u001b[?25l", "\u001b[?25h"].map((code) =>
    terminal.shown().lastIndexOf(code),
  );
  expect(shown).toBeGreaterThan(hidden ?? 0);
});
