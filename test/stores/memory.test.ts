import { memoryClaims, newMemory } from "../../core/stores/memory/locks.ts";
import { describeClaims } from "../conformance/claims.ts";
import { describeLockStore } from "../conformance/lock-store.ts";
import { memoryUnderTest } from "../support/under-test.ts";

describeLockStore("memory", memoryUnderTest);

describeClaims("memory", async () => memoryClaims(newMemory()));
