import { z } from "zod";
import { stockLock } from "../../core/inventory/inventory.ts";
import { createRuntime } from "../../core/steps/runtime.ts";
import { workflow } from "../../core/steps/workflow.ts";
import type { TransactionalInventory } from "../../core/stores/transactional-inventory.ts";
import type { AnyStore } from "../../infra/open.ts";
import { recordedJournal } from "../models/recorded-journal.ts";
import type { HistoryEvent } from "./history.ts";

const Sale = z.object({ id: z.string(), sku: z.string() });

type SellOnce = (sale: z.infer<typeof Sale>, signal: AbortSignal) => Promise<boolean>;

interface SaleRunsOptions {
  /** The lease of runs, and the ttl of their locks, in milliseconds. */
  readonly ttl: number;

  /** The calls of the journal have clients whose names begin with it. */
  readonly client: string;
  readonly record: (event: Omit<HistoryEvent, "time">) => void;
}

/**
 * Returns a function that sells one unit in a run with one transactional step, and resolves to whether the run has
 * completed. Undefined for a store without a journal.
 */
export function saleRuns(
  opened: AnyStore,
  { ttl, client, record }: SaleRunsOptions,
): SellOnce | undefined {
  if (!opened.has("journal")) return undefined;
  const inventory = opened.inventory as TransactionalInventory;
  const sell = workflow(
    { name: "campaign-sale", version: 1, input: Sale, id: ({ id }) => id },
    (ctx, { id, sku }) =>
      ctx.step.tx("sell", { lock: { names: stockLock(sku), ttl } }, async ({ tx, fence }) => {
        // A new id for each execution: one id would hide that the step has sold twice.
        const operationId = `${id}/${crypto.randomUUID()}`;
        await inventory.within(tx).decrement({ sku, quantity: 1, operationId, fence });
      }),
  );
  const journal = recordedJournal(opened.journal, client, record);
  const { locks } = opened;
  const runtime = createRuntime({ journal, locks, lease: ttl });
  return async (sale, signal) => (await runtime.run(sell, sale, { signal })).status === "completed";
}
