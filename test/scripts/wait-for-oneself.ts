import { openMemory } from "../../core/stores/memory/index.ts";

/** wait-for-oneself: waits without end for a lock that this process has for a second, and must get it. */
const { locks } = await openMemory();
await locks.lock("a", { ttl: 1_000, wait: 0, renew: false });
const { signal } = new AbortController();
await locks.lock("a", { ttl: 1_000, wait: Number.POSITIVE_INFINITY, signal });
process.stdout.write("has it\n");
process.exit();
