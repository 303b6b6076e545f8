import { channel } from "node:diagnostics_channel";
import type { LockEvent } from "../core/lock/events.ts";

const locks = channel("lockstep:lock");

/** Publishes what happens to locks on the diagnostics channel "lockstep:lock". */
export function publish(event: LockEvent): void {
  if (locks.hasSubscribers) locks.publish(event);
}
