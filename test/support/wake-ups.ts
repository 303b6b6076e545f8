import { onTestFinished } from "vitest";
import type { createRuntime } from "../../core/steps/runtime.ts";
import { pause, until } from "./until.ts";

/** Listens, and waits until the store has confirmed the subscription, which counts as a wake-up. */
export async function wakeUpsOf(runtime: ReturnType<typeof createRuntime>) {
  let count = 0;
  onTestFinished(
    runtime.onDue(() => {
      count += 1;
    }),
  );
  await until(() => count > 0);
  return {
    async by(call: () => unknown) {
      // A second wake-up of an earlier call comes within two pauses of 20 ms.
      await pause(100);
      const before = count;
      await call();
      await until(() => count > before);
    },
  };
}
