import { afterAll } from "vitest";
import { running } from "./running.ts";

/** A process that a failed test has left behind holds its worker's output open, and vitest would wait for its end. */
afterAll(() => {
  for (const child of running) child.kill("SIGKILL");
});
