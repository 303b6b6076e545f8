/** What is used of npm redlock, whose own types its package does not export. */
declare module "redlock" {
  import type { Redis } from "ioredis";

  export interface Settings {
    readonly retryCount?: number;
    readonly retryDelay?: number;
    readonly retryJitter?: number;
  }

  export default class Redlock {
    constructor(clients: Iterable<Redis>, settings?: Settings);
    using<T>(
      resources: readonly string[],
      duration: number,
      routine: (signal: AbortSignal) => Promise<T>,
    ): Promise<T>;
  }
}
