/** Locks, stock and runs on Cloudflare's Workers. */

export { type D1Store, openD1 } from "../../core/stores/cloudflare/index.ts";
export type { SqlStore } from "../../core/stores/sql/store.ts";
export type { TransactionalInventory } from "../../core/stores/transactional-inventory.ts";
export { lockstepObject } from "./lockstep-object.ts";
