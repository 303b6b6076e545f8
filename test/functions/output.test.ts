import { afterAll, afterEach, expect, test, vi } from "vitest";
import { TerminalError } from "../../core/steps/errors.ts";
import { showFailure } from "../../functions/cli/terminal/outcome.ts";
import { note, warn } from "../../functions/cli/terminal/output.ts";

const written = vi.spyOn(process.stderr, "write").mockReturnValue(true);

afterEach(() => written.mockClear());

afterAll(() => written.mockRestore());

test("a warning keeps its lines, and its control characters do not reach the terminal", () => {
  warn("no \u001b[2Jmoney\n  at \u009b31mcharge\u007f\r");
  expect(written.mock.calls).toEqual([
    ["lockstep: no \\u001b[2Jmoney\n  at \\u009b31mcharge\\u007f\\r\n"],
  ]);
});

test("the failure of a step is logged without control characters, and a TerminalError not at all", () => {
  const at = { runId: "order-7", workflow: "order", key: "charge\u001b[1m", attempt: 1 };
  showFailure(Object.assign(new Error("away"), { stack: "Error: away\u001b]0;title\u0007" }), at);
  showFailure(new TerminalError("DECLINED", "no money"), at);
  expect(written.mock.calls).toEqual([
    [
      "lockstep: run order-7, step charge\\u001b[1m, attempt 1: Error: away\\u001b]0;title\\u0007\n",
    ],
  ]);
});

test("progress on a terminal has no passwords, no control characters of others, and a pipe gets none", () => {
  const isTerminal = process.stderr.isTTY;
  process.stderr.isTTY = true;
  note("waiting for a, held by b\u001b[2J");
  note("1 of 2, mysql://shop:s3cret@db/shop: hands over");
  process.stderr.isTTY = false;
  note("waiting for a");
  process.stderr.isTTY = isTerminal;
  expect(written.mock.calls).toEqual([
    ["waiting for a, held by b\\u001b[2J\n"],
    ["1 of 2, mysql://db/shop: hands over\n"],
  ]);
});
