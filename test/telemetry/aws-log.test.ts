import { expect, onTestFinished, test, vi } from "vitest";

/** The lines that are written with LOCKSTEP_LOG set like this. */
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

test("an error is a line of bounded length, without a password", async () => {
  const { log, lines } = await logging("info");
  const error = new Error(`no answer of mysql://root:hunter2@db/${"/x".repeat(200_000)}`);
  log("failed", { error });
  const [line = ""] = lines;
  expect(JSON.parse(line).error.message).toMatch(/^no answer of mysql:\/\/db/);
  expect(line.length).toBeLessThan(3_000);
});
