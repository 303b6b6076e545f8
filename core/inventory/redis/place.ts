import type { Redis, Replicas } from "../../redis/redis.ts";
import type { Keys } from "./keys.ts";

/** Where operations are done. */
export interface Place {
  readonly redis: Redis;
  readonly keys: Keys;

  /** Which replicas must have a change before it counts. */
  readonly replicas: Replicas | undefined;
}
