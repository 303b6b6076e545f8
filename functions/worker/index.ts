/** Long-lived processes: a worker that executes due runs, and one that fulfils orders from a table in batches per sku. */
export { type FulfilReport, fulfil } from "../batch/fulfil.ts";
export { addOrders, countOrders } from "../batch/orders.ts";
export type { WorkerEvent, WorkerReport } from "./options.ts";
export { runWorker } from "./worker.ts";
export type { WorkflowServices } from "./workflow-module.ts";
