import { sleep } from "../../core/lock/abort.ts";
import type {
  Etcd,
  Get,
  KeyValue,
  OpAnswer,
  RangeAnswer,
  TxnOp,
} from "../../core/stores/etcd/client/etcd.ts";
import { stockKeys } from "../../core/stores/etcd/inventory/context.ts";
import { etcdInventory } from "../../core/stores/etcd/inventory/index.ts";
import { describeSlowStock, sku } from "../conformance/slow-stock.ts";

const keys = stockKeys("");

const UNITS = { onHand: 9, reserved: 20_000, sold: 0, supplied: 20_009, seq: 0 };

/** Opens stock whose server takes `span` for each answer, accepts every write, and has so many expired reservations. */
function stockOn(span: number, expired = 0) {
  let left = expired;
  const keyValue = (key: string, value: string): KeyValue => {
    return { key, value, createRevision: 1n, modRevision: 1n, version: 1n, lease: 0n };
  };
  const read = ({ keys: read, limit = 0 }: Get): RangeAnswer => {
    if (read === keys.stock(sku)) {
      const value = JSON.stringify({ ...UNITS, reservations: left });
      return { kvs: [keyValue(read, value)], count: 1, revision: 1n };
    }
    if (typeof read === "string") return { kvs: [], count: 0, revision: 1n };
    const units = (_: unknown, i: number) => keyValue(keys.units(sku, `${i}`), "1");
    const kvs = Array.from({ length: Math.min(left, limit) }, units);
    return { kvs, count: left, revision: 1n };
  };
  const execute = (op: TxnOp): OpAnswer => {
    if (op.op === "remove") left -= 1;
    const done = { kvs: [], count: 0, removed: 0, txn: undefined };
    if (op.op === "get") return { ...done, ...read(op) };
    if (op.op !== "txn") return done;
    return { ...done, txn: { succeeded: true, answers: op.txn.do.map(execute) } };
  };
  const etcd: Pick<Etcd, "address" | "txn" | "range"> = {
    address: "etcd at shop",
    async txn(txn, signal) {
      await sleep(span, signal);
      return { succeeded: true, revision: 1n, answers: txn.do.map(execute) };
    },
    async range(get, signal) {
      await sleep(span, signal);
      return read(get);
    },
  };
  return { stock: etcdInventory(etcd as Etcd), left: () => left };
}

describeSlowStock("etcd", stockOn, 12_000);
