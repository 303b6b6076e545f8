import type { CallEvent } from "../models/replay.ts";
import type { History } from "./history.ts";
import type { StoreServer } from "./network.ts";
import type { Plan } from "./plan.ts";
import type { World } from "./world.ts";

/** The sku that is only counted under its lock, and the one that is sold. */
export const COUNTED = "count";
export const SOLD = "cup";

/** An outside system that recognises repetitions by their key: what was done, or taken back, under each key. */
type Outside = Map<string, "done" | "undone">;

/** What all clients of a schedule share besides the store. */
export interface Shared {
  readonly plan: Plan;
  readonly world: World;
  readonly server: StoreServer;
  readonly history: History;
  readonly outside: Outside;

  /** The values that step `ask` has returned to later code, by run. */
  readonly answers: Map<string, Set<string>>;

  /** How often the step that may run once at most has been called, by run. */
  readonly calls: Map<string, number>;

  /** The ended runs as clients have seen them, and when by the store's clock. */
  readonly ended: Map<string, { readonly end: string; readonly at: number }>;

  /** The runs whose cancellation was acknowledged. */
  readonly cancelled: Set<string>;

  /** The calls for locks, the counter, stock and runs, in order of time. */
  readonly events: CallEvent[];

  /** Writes a line of the trace. */
  note(text: string): void;
}
