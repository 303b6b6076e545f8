/** Locks, stock and runs on Cloudflare's Workers. */

export { type D1Store, openD1 } from "../../core/stores/cloudflare/index.ts";
export type { SqlInventory } from "../../core/stores/sql/inventory/index.ts";
export type { SqlStore } from "../../core/stores/sql/store.ts";
export { lockstepObject } from "./lockstep-object.ts";
