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
  ["lock job --wait -5s -- true", "--wait must not be negative, and is -5s"],
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

test("an option without its value is refused: an empty variable must not mean the default", async () => {
  const page = await commandLinePage();
  const options = page.split(/^#+ lockstep /m).flatMap((section) => {
    const [command = ""] = section.split("\n", 1);
    const [usage = ""] = /^lockstep .*/m.exec(section) ?? [];
    if (usage.includes("<action>")) return [];
    const words = [...command.split(" "), ...(usage.match(/<[^>]+>/g) ?? [])];
    const lines = section.split(/\n {2}(?:-\w, )?--/).slice(1);
    const taking = lines.filter((line) => /\[(?:string|number|array|choices)/.test(line));
    return taking.map((line) => ({ command, words, option: /^[a-z-]+/.exec(line)?.[0] ?? "" }));
  });
  expect(options.length).toBeGreaterThan(100);
  for (const { command, words, option } of options) {
    const { status, stdout, stderr } = await cliInProcess(...words, `--${option}`);
    const usage = `lockstep ${command}`;
    expect(stderr).toBe(`lockstep: --${option} needs a value (see ${usage} --help)\n`);
    expect({ status, stdout }).toEqual({ status: 64, stdout: "" });
  }
});
