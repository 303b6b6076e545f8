import { afterEach, expect, test, vi } from "vitest";
import { sleep } from "../../core/lock/abort.ts";
import {
  StoreClosedError,
  StoreUnavailableError,
  UnknownOutcomeError,
} from "../../core/lock/errors.ts";
import { retryUntilKnown } from "../../core/lock/retry.ts";

afterEach(() => {
  vi.useRealTimers();
});

test("an attempt that has waited in this process for its whole time is made again, and its timeout is not reported", async () => {
  let attempts = 0;
  const once = async (limit: AbortSignal) => {
    attempts += 1;
    if (attempts < 3) await sleep(60_000, limit);
    return "done";
  };
  expect(await retryUntilKnown("a store", "it was done", undefined, once, { attempt: 10 })).toBe(
    "done",
  );
});

test("a caller that waits in this process for all of the patience gets STORE_UNAVAILABLE", async () => {
  const once = (limit: AbortSignal) => sleep(60_000, limit);
  const outcome = retryUntilKnown("a store", "it was done", undefined, once, {
    attempt: 10,
    patience: 100,
  });
  await expect(outcome).rejects.toMatchObject({ code: "STORE_UNAVAILABLE" });
});

test("a refusal after a lost answer does not tell that nothing has happened", async () => {
  let attempts = 0;
  const once = async () => {
    attempts += 1;
    throw attempts === 1
      ? new UnknownOutcomeError("a store", "it was done")
      : new StoreClosedError();
  };
  const outcome = retryUntilKnown("a store", "it was done", undefined, once);
  await expect(outcome).rejects.toMatchObject({ code: "UNKNOWN_OUTCOME" });
  expect(attempts).toBe(2);
});

test("a caller that aborts before anything has happened gets its own reason", async () => {
  const caller = new AbortController();
  const once = async () => {
    caller.abort("enough");
    throw new StoreUnavailableError("a store", "down");
  };
  await expect(retryUntilKnown("a store", "it was done", caller.signal, once)).rejects.toBe(
    "enough",
  );
});

test("a process that was frozen for longer than its patience asks the store once more", async () => {
  vi.useFakeTimers();
  let attempts = 0;
  const once = async (limit: AbortSignal) => {
    attempts += 1;
    if (attempts > 1) return "done";
    const answer = sleep(60_000, limit);
    vi.advanceTimersByTime(20_000);
    return answer.then(() => undefined);
  };
  expect(await retryUntilKnown("a store", "it was done", undefined, once)).toBe("done");
});

test("pauses between failures that come at once are a part of the patience", async () => {
  vi.useFakeTimers();
  const once = async () => {
    throw new UnknownOutcomeError("a store", "it was done");
  };
  const outcome = retryUntilKnown("a store", "it was done", undefined, once);
  const rejected = expect(outcome).rejects.toMatchObject({ code: "UNKNOWN_OUTCOME" });
  await vi.advanceTimersByTimeAsync(11_000);
  await rejected;
});
