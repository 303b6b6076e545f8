import { describe, expect, onTestFinished, test } from "vitest";
import { z } from "zod";
import { createRuntime } from "../../core/steps/runtime.ts";
import { workflow } from "../../core/steps/workflow.ts";
import { memoryJournal } from "../../core/stores/memory/journal.ts";
import { runWorker } from "../../functions/worker/index.ts";
import { pause, until } from "../support/until.ts";
import { freshName, LONG, type LockSuite, SHORT } from "./lock-suite.ts";

const HOUR = 3_600_000;

/** Tests what clients learn of the releases of others, without a place in the queue. */
export function describeReleases(suite: LockSuite): void {
  const { open } = suite;

  describe("whenFree", () => {
    const whenFree = (name: string, signal = new AbortController().signal) => {
      let isFree = false;
      const freed = open()
        .whenFree?.(name, signal)
        .then(() => {
          isFree = true;
        });
      return { freed, isFree: () => isFree };
    };

    test("resolves at once for a free lock, and else after its release", async () => {
      const name = freshName();
      await whenFree(name).freed;
      const lock = await open().lock(name, { ttl: LONG, wait: LONG });
      const { freed, isFree } = whenFree(name);
      await pause(100);
      expect(isFree()).toBe(false);
      await lock.unlock();
      await freed;
      await whenFree(name).freed;
    });

    test("resolves when the lock of a dead holder has expired", async () => {
      const name = freshName();
      await open().lock(name, { ttl: SHORT, wait: LONG, renew: false });
      await whenFree(name).freed;
    });

    test("rejects when its signal aborts, or its client is closed", async () => {
      const name = freshName();
      await open().lock(name, { ttl: LONG, wait: LONG });
      const stop = new AbortController();
      const client = open();
      const waits = [
        client.whenFree?.(name, stop.signal),
        client.whenFree?.(name, new AbortController().signal),
      ];
      await pause(50);
      stop.abort(new Error("stopped"));
      await expect(waits[0]).rejects.toThrow("stopped");
      await Promise.all([
        expect(waits[1]).rejects.toMatchObject({ code: "STORE_CLOSED" }),
        client.close(),
      ]);
    });
  });

  test("a run that is parked for locks goes on when a holder outside of the journal releases them", async () => {
    const [a, b] = [freshName(), freshName()];
    const Task = z.object({ id: z.string(), locks: z.array(z.string()) });
    const definition = {
      name: "task",
      version: 1,
      input: Task,
      id: ({ id }: { id: string }) => id,
    };
    const task = workflow(definition, async (ctx, { locks }) => {
      await ctx.step("work", { lock: { names: locks, ttl: LONG } }, async () => {});
    });
    const journal = memoryJournal();
    // Only a wake-up explains that a run goes on before this time is over.
    const runtime = createRuntime({ journal, locks: open(), workflows: [task], lockPoll: HOUR });
    const holder = open();
    const [first, second] = [
      await holder.lock(a, { ttl: LONG, wait: LONG }),
      await holder.lock(b, { ttl: LONG, wait: LONG }),
    ];
    const stop = new AbortController();
    const working = runWorker({ runtime, signal: stop.signal });
    onTestFinished(async () => {
      stop.abort();
      await working;
    });
    await runtime.start(task, { id: "both", locks: [a, b] });
    await runtime.start(task, { id: "one", locks: [b] });
    const statusOf = async (id: string) => (await journal.find(id))?.status;
    const isParked = async (id: string) => (await journal.find(id))?.reason === "lock-busy";
    await until(async () => (await isParked("both")) && (await isParked("one")));
    await first.unlock();
    await pause(100);
    expect([await statusOf("both"), await statusOf("one")]).not.toContain("completed");
    await second.unlock();
    await until(async () => (await statusOf("one")) === "completed");
    await until(async () => (await statusOf("both")) === "completed");
  });
}
