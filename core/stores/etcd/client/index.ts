/** What users of a client of etcd work with. */
export type {
  Compare,
  Etcd,
  KeyValue,
  OpAnswer,
  RangeAnswer,
  TxnAnswer,
  TxnOp,
} from "./etcd.ts";
export { NoLeaseError } from "./etcd.ts";
export { guardedWrite } from "./guarded.ts";
