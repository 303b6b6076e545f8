import { expect, onTestFinished, test, vi } from "vitest";
import { TerminalError } from "../../core/steps/errors.ts";

/** Returns the lines that are written with this value of LOCKSTEP_LOG. */
async function logging(level: string) {
  vi.stubEnv("LOCKSTEP_LOG", level);
  vi.resetModules();
  const { log } = await import("../../functions/aws/log.ts");
  const lines: string[] = [];
  const stdout = vi.spyOn(process.stdout, "write").mockImplementation((line) => {
    lines.push(String(line));
    return true;
  });
  onTestFinished(() => {
    stdout.mockRestore();
    vi.unstubAllEnvs();
  });
  return { log, lines };
}

test.each([
  ["", ["info", "warn"]],
  ["error", ["info", "warn"]],
  ["debug", ["debug", "info", "warn"]],
  ["warn", ["warn"]],
] as const)("LOCKSTEP_LOG=%s writes %j", async (given, levels) => {
  const { log, lines } = await logging(given);
  for (const level of ["debug", "info", "warn"] as const) log("something", {}, level);
  expect(lines.map((line) => JSON.parse(line).level)).toEqual(levels);
});

test("an error has its stack and causes, one of this package has none", async () => {
  const { log, lines } = await logging("info");
  const cause: Error = new Error("mysql://root:hunter2@db");
  cause.cause = cause;
  log("failed", { error: new TypeError("broken", { cause }) });
  log("failed", { error: new TerminalError("SOLD_OUT") });
  const [bug, answer] = lines.map((line) => JSON.parse(line).error);
  expect(bug).toMatchObject({ name: "TypeError", message: "broken" });
  expect(bug.stack).toMatch(/^ +at .*aws-log\.test\.ts:\d+/);
  expect(bug.cause).toMatchObject({ message: "mysql://db", stack: expect.any(String) });
  expect(lines.join()).not.toContain("hunter2");
  expect(answer).toEqual({ name: "TerminalError", message: "SOLD_OUT", code: "SOLD_OUT" });
});

test("an error is a line of bounded length, without a password", async () => {
  const { log, lines } = await logging("info");
  const error = new Error(`no answer of mysql://root:hunter2@db/${"/x".repeat(200_000)}`);
  log("failed", { error });
  const [line = ""] = lines;
  expect(JSON.parse(line).error.message).toMatch(/^no answer of mysql:\/\/db/);
  expect(line.length).toBeLessThan(5_000);
});
