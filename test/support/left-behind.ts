import { afterAll } from "vitest";
import { running } from "./running.ts";

/** Kills processes that a failed test has left behind: they keep its worker's output open, and vitest would wait. */
afterAll(() => {
  for (const child of running) child.kill("SIGKILL");
});
