import { deadline as limitOf, race } from "../../core/lock/abort.ts";
import { UnknownOutcomeError } from "../../core/lock/errors.ts";
import type { Deadline, Millis } from "../../core/lock/time.ts";
import { toProblem } from "./problem.ts";

/** The time after the deadline in which the journal may still answer, for all calls of a request: the execution parks its run by then. */
const PARK_TIME: Millis = 1_000;

/** Returns the outcome of the promise, or throws a Problem if the invocation ends first. */
export async function bounded<T>(promise: Promise<T>, deadline: Deadline): Promise<T> {
  const unknown = () => toProblem(new UnknownOutcomeError("the journal", "it was done"));
  using limit = limitOf(Math.max(0, deadline.remaining() + PARK_TIME), unknown);
  return await race(promise, limit.signal);
}
