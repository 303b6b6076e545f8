/** The client of etcd for users, and its types. */
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
