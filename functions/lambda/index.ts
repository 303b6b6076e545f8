/** Lambda handlers for queues, schedules and plain events. The handler for HTTP is in lockstep/http. */
export { lazy } from "../invocation/provider.ts";
export { instrument } from "./instrument.ts";
export { lockedHandler } from "./locked-handler.ts";
export { migrateHandler } from "./migrate-handler.ts";
export type { PoisonMessage, QueueEvent } from "./queue/options.ts";
export { queueHandler } from "./queue/queue-handler.ts";
export { type Sqs, sqs } from "./queue/sqs.ts";
export { type SaleResult, stockHandler } from "./queue/stock-handler.ts";
export { scheduleHandler } from "./schedule/schedule-handler.ts";
export { type SweepReport, sweepHandler } from "./schedule/sweep-handler.ts";
export { rdsOptions, withSecret } from "./secret.ts";
