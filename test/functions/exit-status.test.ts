import { expect, test } from "vitest";
import { StoreUnavailableError, UnknownOutcomeError } from "../../core/lock/errors.ts";
import { describeError } from "../../functions/cli/exit-status.ts";

test("an error of a store is printed with what the system has said, once", () => {
  const full = new Error("database or disk is full");
  const lost = new UnknownOutcomeError("sqlite", `a change was committed (${full.message})`, full);
  expect(describeError(lost)).toBe(lost.message);
  const unknown = new UnknownOutcomeError("sqlite", "the sale was done", lost);
  expect(describeError(unknown)).toBe(`${unknown.message} (database or disk is full)`);
  const unavailable = new StoreUnavailableError("sqlite", "no answer", new Error(""));
  expect(describeError(unavailable)).toBe("sqlite is unavailable: no answer");
  expect(describeError("text")).toBe("text");
});
