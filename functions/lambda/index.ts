/** Lambda handlers for queues, schedules and plain events; those for HTTP are in lockstep/http. */

export { InvalidMessageError } from "../queue/message.ts";
export type {
  Poison,
  PoisonOptions,
} from "../queue/options.ts";
export type { StockOrder } from "../queue/order.ts";
export { type QueueOptions, queueHandler, type RunPoisonOptions } from "../queue/queue-handler.ts";
export type { Stock } from "../queue/sale.ts";
export { type Sqs, type SqsOptions, sqs } from "../queue/sqs.ts";
export { type StockAnswer, type StockOptions, stockHandler } from "../queue/stock-handler.ts";
export type { LaterReason, QueueEvent } from "../queue/verdict.ts";
export {
  type ScheduledEvent,
  type ScheduleOptions,
  scheduleHandler,
} from "../schedule/schedule-handler.ts";
export { type SweepOptions, type Swept, sweepHandler } from "../schedule/sweep-handler.ts";
export type { LambdaContext, ReserveOption } from "./invocation.ts";
export { lazily, type Source } from "./source.ts";
export { type LambdaLockOptions, withLock } from "./with-lock.ts";
