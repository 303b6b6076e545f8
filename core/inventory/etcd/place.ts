import type { Etcd } from "../../etcd/etcd.ts";
import type { Line } from "../../lock/line.ts";
import type { Keys } from "./keys.ts";
import type { Seen } from "./seen.ts";

/** Where operations are done. */
export interface Place {
  readonly etcd: Etcd;
  readonly keys: Keys;
  readonly seen: Seen;

  /** By sku, of those who change it. */
  readonly line: Line;
}
