/** Carries runs in a process that lives long. */
export type { KeyedRun, KeyOf } from "./keys.ts";
export type { WorkerEvent, WorkerOptions, WorkerReport } from "./options.ts";
export type { Services } from "./program.ts";
export { runWorker } from "./worker.ts";
