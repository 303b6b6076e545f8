import { expect, test } from "vitest";
import { createRuntime } from "../../core/steps/index.ts";
import { openMemory } from "../../core/stores/memory/index.ts";
import { memoryClaims, newMemory } from "../../core/stores/memory/locks.ts";
import { describeClaims } from "../conformance/claims.ts";
import { describeElections, describeLostProclamations } from "../conformance/elections.ts";
import { describeLockStore } from "../conformance/lock-store.ts";
import { flow } from "../support/flow.ts";
import { memoryUnderTest } from "../support/under-test.ts";

describeLockStore("memory", memoryUnderTest);
describeElections("memory", memoryUnderTest);
describeLostProclamations("memory", memoryUnderTest);

describeClaims("memory", async () => memoryClaims(newMemory()));

test("the journal of a closed store refuses runs, reads and entities, as the locks do", async () => {
  const { journal, locks, close } = await openMemory();
  const rt = createRuntime({ journal, locks });
  const wf = flow(async () => 1);
  expect(await rt.run(wf, { n: 1 })).toMatchObject({ status: "completed" });
  await close();
  const closed = { code: "STORE_CLOSED" };
  await expect(rt.run(wf, { n: 1 })).rejects.toMatchObject(closed);
  await expect(rt.start(wf, { n: 1 })).rejects.toMatchObject(closed);
  await expect(journal.list({})).rejects.toMatchObject(closed);
  await expect(journal.entities?.purge(1)).rejects.toMatchObject(closed);
  await expect(locks.tryLock("a", { ttl: 1_000 })).rejects.toMatchObject(closed);
});
