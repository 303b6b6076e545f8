import { stat } from "node:fs/promises";
import { expect, test } from "vitest";
import { deadline, noAnswer, race } from "../../core/lock/abort.ts";

/** Asks for an answer that arrives while the process is stalled beyond the deadline. */
async function isInTime(): Promise<boolean> {
  // Of what follows an immediate, timers are the first.
  await new Promise((resolve) => setImmediate(resolve));
  using limit = deadline(20, noAnswer);
  const answer = race(stat(import.meta.filename), limit.signal);
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 200);
  return await answer.then(
    () => true,
    () => false,
  );
}

test("an answer that has arrived during a stall of the process is in time", async () => {
  // A busy machine may stall the process once more at a deadline.
  const results = [await isInTime(), await isInTime(), await isInTime(), await isInTime()];
  expect(results).toContain(true);
});

test("a deadline without an answer aborts with its reason, and not after its disposal", async () => {
  const [first, second] = [deadline(10, noAnswer), deadline(10, noAnswer)];
  second[Symbol.dispose]();
  const reason = await new Promise((resolve) => {
    first.signal.addEventListener("abort", () => resolve(first.signal.reason));
  });
  expect(reason).toMatchObject({ message: "no answer in time" });
  expect(second.signal.aborted).toBe(false);
});
