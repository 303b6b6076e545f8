import { expect, test, vi } from "vitest";
import { commandLinePage } from "../../docs/site/reference/command-line.ts";
import { cliInProcess } from "../support/cli-in-process.ts";

test("the help, its page and the messages about usage are in English under every locale", async () => {
  vi.stubEnv("LC_ALL", "zh_CN.UTF-8");
  const page = await commandLinePage();
  expect(page).toContain("Options:");
  expect(page).not.toMatch(/\p{Script=Han}/u);
  const { stderr } = await cliInProcess("list", "--stor", "sqlite:shop.db");
  expect(stderr).toBe("lockstep: Unknown argument: stor (see lockstep --help)\n");
  vi.unstubAllEnvs();
});
