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

test("an error whose causes are circular is printed", () => {
  const [first, second] = [new Error("first"), new Error("second")];
  Object.assign(first, { cause: second });
  Object.assign(second, { cause: first });
  const unavailable = new StoreUnavailableError("sqlite", "no answer", first);
  expect(describeError(unavailable)).toBe("sqlite is unavailable: no answer (second)");
});
