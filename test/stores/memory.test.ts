import { memoryClaims, newMemory } from "../../core/stores/memory/locks.ts";
import { describeClaims } from "../conformance/claims.ts";
import { describeElections, describeLostProclamations } from "../conformance/elections.ts";
import { describeLockStore } from "../conformance/lock-store.ts";
import { memoryUnderTest } from "../support/under-test.ts";

describeLockStore("memory", memoryUnderTest);
describeElections("memory", memoryUnderTest);
describeLostProclamations("memory", memoryUnderTest);

describeClaims("memory", async () => memoryClaims(newMemory()));
