/** The part of npm redlock that is used here: the package does not export its types. */
declare module "redlock" {
  import type { Redis } from "ioredis";

  export interface Settings {
    readonly retryCount?: number;
    readonly retryDelay?: number;
    readonly retryJitter?: number;
  }

  export default class Redlock {
    constructor(clients: Iterable<Redis>, settings?: Settings);
    on(event: "error", listener: (error: Error) => void): this;
    using<T>(
      resources: readonly string[],
      duration: number,
      routine: (signal: AbortSignal & { readonly error?: Error }) => Promise<T>,
    ): Promise<T>;
  }
}
