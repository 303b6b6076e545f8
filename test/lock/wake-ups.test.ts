import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { type WakeUpChannel, wakeUpsOver } from "../../core/lock/wake-ups.ts";

beforeEach(() => {
  vi.useFakeTimers();
});

afterEach(() => {
  vi.useRealTimers();
});

/** A channel within this process, and the texts that were sent over it. */
function localChannel() {
  const sent: string[] = [];
  const subscribers = new Set<(text: string | undefined) => void>();
  const channel: WakeUpChannel = {
    async publish(text) {
      sent.push(text);
      for (const onText of subscribers) onText(text);
    },
    subscribe(onText) {
      subscribers.add(onText);
      return () => void subscribers.delete(onText);
    },
  };
  const open = () => wakeUpsOver(channel, (sending) => sending);
  return { channel, sent, subscribers, open };
}

test("a burst of wake-ups is one text at once and one 20 ms later, and then nothing is sent", async () => {
  const { sent, open } = localChannel();
  const { notify } = open();
  for (let i = 0; i < 100; i += 1) notify();
  expect(sent).toHaveLength(1);
  await vi.advanceTimersByTimeAsync(19);
  expect(sent).toHaveLength(1);
  await vi.advanceTimersByTimeAsync(1);
  expect(sent).toHaveLength(2);
  await vi.advanceTimersByTimeAsync(60_000);
  expect(sent).toHaveLength(2);
});

test("listeners hear other clients alone, at most every 20 ms, and share one subscription", async () => {
  const { subscribers, open } = localChannel();
  const ours = open();
  const woken = { first: 0, second: 0 };
  const stopFirst = ours.listen(() => {
    woken.first += 1;
  });
  const stopSecond = ours.listen(() => {
    woken.second += 1;
  });
  expect(subscribers.size).toBe(1);
  ours.notify();
  expect(woken).toEqual({ first: 0, second: 0 });
  for (let i = 0; i < 50; i += 1) open().notify();
  expect(woken).toEqual({ first: 1, second: 1 });
  stopFirst();
  await vi.advanceTimersByTimeAsync(20);
  expect(woken).toEqual({ first: 1, second: 2 });
  stopSecond();
  expect(subscribers.size).toBe(0);
});

test("a channel that fails or does not answer neither fails nor delays the caller, and gets no second text meanwhile", async () => {
  let texts = 0;
  const answers: (() => void)[] = [];
  const channel: WakeUpChannel = {
    publish: () => {
      texts += 1;
      return new Promise((_, reject) => answers.push(() => reject(new Error("no connection"))));
    },
    subscribe: () => {
      throw new Error("the store is closed");
    },
  };
  const { notify, listen } = wakeUpsOver(channel, (sending) => sending);
  notify();
  notify();
  await vi.advanceTimersByTimeAsync(500);
  expect(texts).toBe(1);
  answers[0]?.();
  await vi.advanceTimersByTimeAsync(0);
  expect(texts).toBe(2);
  listen(() => {})();
});
