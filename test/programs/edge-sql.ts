import { stockLock } from "../../core/inventory/inventory.ts";
import { createRuntime, workflow } from "../../core/steps/index.ts";
import type { SqlStore } from "../../core/stores/sql/store.ts";

const input = {
  "~standard": { version: 1, vendor: "test", validate: (value: unknown) => ({ value }) },
} as const;
const ship = workflow({ name: "ship", version: 1, input }, (ctx, order) =>
  ctx.step("ship", async () => `shipped ${order}`),
);

/** Sells a teapot under a lock, and ships it by a workflow. */
export async function sellAndShip(shop: SqlStore, request: Request): Promise<Response> {
  const operationId = new URL(request.url).searchParams.get("id") ?? "";
  const terms = { ttl: "20s", wait: "20s" } as const;
  const { outcome } = await shop.locks.withLock(stockLock("teapot"), terms, ({ fence }) =>
    shop.inventory.decrement({ sku: "teapot", quantity: 1, operationId, fence }),
  );
  if (outcome !== "applied") return Response.json({ outcome });
  const run = await createRuntime(shop).run(ship, operationId, { id: operationId });
  return Response.json({ outcome, run });
}
