import { beforeEach, expect, test } from "vitest";
import { combineTelemetry, type Telemetry } from "../../functions/telemetry/index.ts";

const told: string[] = [];

beforeEach(() => {
  told.length = 0;
});

const telemetry = (tell: (what: string) => void): Telemetry => ({
  lock: () => tell("lock"),
  stock: () => tell("stock"),
  runtime: {
    onEvent: () => tell("run"),
    interceptor: { run: (_, body) => body(), step: (_, body) => body() },
  },
});

const failing = telemetry(() => {
  throw new Error("a failing telemetry");
});

test("an error of one telemetry does not keep the others from being called", () => {
  const both = combineTelemetry(
    failing,
    telemetry((what) => told.push(what)),
  );
  both.lock({ type: "busy", names: ["a"], waited: 0 });
  both.stock({ type: "failed", kind: "claim", lock: "sku/a", error: undefined });
  both.runtime.onEvent({ type: "replayed", runId: "r", key: "a" });
  const { runtime } = combineTelemetry({ runtime: failing.runtime }, both);
  runtime.onEvent({ type: "replayed", runId: "r", key: "b" });
  expect(told).toEqual(["lock", "stock", "run", "run"]);
});
