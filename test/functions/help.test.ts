import { expect, test, vi } from "vitest";
import { commandLinePage } from "../../docs/site/reference/command-line.ts";
import { cliInProcess } from "../support/cli-in-process.ts";

test("the help, its page and the messages about usage are in English under every locale", async () => {
  vi.stubEnv("LC_ALL", "zh_CN.UTF-8");
  const page = await commandLinePage();
  expect(page).toContain("Options:");
  expect(page).not.toMatch(/\p{Script=Han}/u);
  const { stderr } = await cliInProcess("list", "--stor", "sqlite:shop.db");
  expect(stderr).toBe("lockstep: Unknown argument: stor (see lockstep list --help)\n");
  vi.unstubAllEnvs();
});

test.each([
  ["inventory set", "<sku> and <quantity> are missing (see lockstep inventory set --help)"],
  ["inventory set cup", "<quantity> is missing (see lockstep inventory set --help)"],
  ["runs", "<action> is missing (see lockstep runs --help)"],
  ["lock job --wait -5s", "--wait must not be negative, and is -5s (see lockstep lock --help)"],
  ["lock job -5s", "Unknown arguments: 5, s; a command follows a"],
  ["", "which command? (see lockstep --help)"],
])(
  "the misuse %j is told with its cause, and the command whose help tells more",
  async (line, problem) => {
    const { status, stdout, stderr } = await cliInProcess(...line.split(" ").filter(Boolean));
    expect(stderr).toContain(`lockstep: ${problem}`);
    expect({ status, stdout }).toEqual({ status: 64, stdout: "" });
  },
);
