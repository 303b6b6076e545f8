import { createRuntime } from "lockstep/steps";
import { locks, shop } from "./stores.ts";
import { telemetry } from "./telemetry.ts";
import { workflows } from "./workflows.ts";

/** Returns a runtime for an event, on the stores of the moment: a runtime holds no connections of its own. */
export async function runtime() {
  const { journal } = await shop();
  return createRuntime({ journal, locks: await locks(), workflows, ...telemetry.runtime });
}
