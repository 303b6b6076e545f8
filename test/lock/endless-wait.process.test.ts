import { expect, test } from "vitest";
import { runScript } from "../support/script.ts";

test("a wait without end for another caller of this process keeps the process alive", async () => {
  using script = runScript("wait-for-oneself");
  expect(await script.line()).toBe("has it");
  expect(await script.ended).toBe(0);
});
