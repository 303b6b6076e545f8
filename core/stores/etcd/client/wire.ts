import { fromBase64, toBase64 } from "../../../lock/base64.ts";
import type {
  Compare,
  Get,
  KeyChange,
  Keys,
  KeyValue,
  OpAnswer,
  RangeAnswer,
  Revision,
  Txn,
  TxnAnswer,
  TxnOp,
} from "./etcd.ts";

/** The encoding of bytes in a transport: none, or base64. */
export interface BytesFormat<T = unknown> {
  encode(bytes: Uint8Array): T;

  /** Decodes a field, which is missing when it is empty. */
  decode(bytes: unknown): Uint8Array;
}

/** Bytes as gRPC carries them. */
export const plainBytes: BytesFormat<Uint8Array> = {
  encode: (bytes) => bytes,
  decode: (bytes) => (bytes ?? NO_BYTES) as Uint8Array,
};

const NO_BYTES = new Uint8Array();

/** Bytes as JSON carries them. */
export const base64: BytesFormat<string> = {
  encode: toBase64,
  decode: (text) => fromBase64((text ?? "") as string),
};

/**
 * A message of etcd as a plain object with the field names of the protocol. Numbers of 64 bits are decimal texts; fields
 * with their default value may be missing.
 */
export type Message = Readonly<Record<string, unknown>>;

/** The unary calls, each a method of a gRPC service and a path of the gateway. */
export const METHODS = {
  range: { service: "KV", method: "range", path: "/v3/kv/range", writes: false },
  txn: { service: "KV", method: "txn", path: "/v3/kv/txn", writes: true },
  grant: { service: "Lease", method: "leaseGrant", path: "/v3/lease/grant", writes: true },
  revoke: { service: "Lease", method: "leaseRevoke", path: "/v3/lease/revoke", writes: true },
  timeToLive: {
    service: "Lease",
    method: "leaseTimeToLive",
    path: "/v3/lease/timetolive",
    writes: false,
  },
} as const;

export type MethodName = keyof typeof METHODS;

const utf8 = new TextEncoder();
// Keeps the byte order mark at the beginning of a text.
const text = new TextDecoder("utf-8", { ignoreBOM: true });

/** Converts between etcd's messages and the client's terms. */
export class MessageCodec {
  readonly #bytes: BytesFormat;

  constructor(bytes: BytesFormat) {
    this.#bytes = bytes;
  }

  keys(keys: Keys, after?: string): Message {
    if (typeof keys === "string") return { key: this.#encode(keys) };
    // A key and a zero byte are the smallest key after that key.
    const first = after === undefined ? keys.prefix || "\0" : `${after}\0`;
    return { key: this.#encode(first), range_end: this.#bytes.encode(endOfPrefix(keys.prefix)) };
  }

  get({ keys, by, order, limit, createdBy, keysOnly, serializable, after }: Get): Message {
    return {
      ...this.keys(keys, after),
      ...(by && { sort_target: SORT_TARGETS[by] }),
      ...((by || order) && { sort_order: SORT_ORDERS[order ?? "ascending"] }),
      ...(limit !== undefined && { limit: String(limit) }),
      ...(createdBy !== undefined && { max_create_revision: String(createdBy) }),
      ...(keysOnly && { keys_only: true }),
      ...(serializable && { serializable: true }),
    };
  }

  txn({ when, do: ops, otherwise = [] }: Txn): Message {
    return {
      compare: when.map((compare) => this.#compare(compare)),
      success: ops.map((op) => this.#op(op)),
      failure: otherwise.map((op) => this.#op(op)),
    };
  }

  toTxnAnswer(message: Message): TxnAnswer {
    return { ...this.#toTxn(message), revision: toRevision(message) };
  }

  toRangeAnswer(message: Message): RangeAnswer {
    return { ...this.#toRange(message), revision: toRevision(message) };
  }

  toChanges(events: unknown): readonly KeyChange[] {
    return list(events).map((event) => {
      const { key, value, createRevision, modRevision, lease } = this.#toKeyValue(event.kv);
      const type = DELETE.test(String(event.type)) ? "remove" : "put";
      return { type, key, value, createRevision, modRevision, lease };
    });
  }

  #encode(text: string): unknown {
    return this.#bytes.encode(utf8.encode(text));
  }

  #decode(bytes: unknown): string {
    return text.decode(this.#bytes.decode(bytes));
  }

  #compare(compare: Compare): Message {
    const { keys, is, target, than } = compare;
    const operand = target === "value" ? this.#encode(than) : String(than);
    return {
      ...this.keys(keys),
      target: TARGETS[target],
      result: RESULTS[is],
      [FIELDS[target]]: operand,
    };
  }

  #op(op: TxnOp): Message {
    switch (op.op) {
      case "put":
        return {
          request_put: {
            key: this.#encode(op.key),
            value: this.#encode(op.value),
            ...(op.lease !== undefined && { lease: String(op.lease) }),
          },
        };
      case "get":
        return { request_range: this.get(op) };
      case "remove":
        return { request_delete_range: this.keys(op.keys) };
      case "txn":
        return { request_txn: this.txn(op.txn) };
    }
  }

  #toTxn(message: Message): Omit<TxnAnswer, "revision"> {
    return {
      succeeded: message.succeeded === true,
      answers: list(message.responses).map((answer) => this.#toAnswer(answer)),
    };
  }

  #toAnswer(message: Message): OpAnswer {
    const { response_range: range, response_delete_range: removed, response_txn: txn } = message;
    return {
      ...this.#toRange((range ?? {}) as Message),
      removed: Number((removed as Message | undefined)?.deleted ?? 0),
      txn: txn ? this.#toTxn(txn as Message) : undefined,
    };
  }

  #toRange({ kvs, count }: Message): Pick<RangeAnswer, "kvs" | "count"> {
    return { kvs: list(kvs).map((kv) => this.#toKeyValue(kv)), count: Number(count ?? 0) };
  }

  #toKeyValue(kv: unknown): KeyValue {
    const { key, value, create_revision, mod_revision, version, lease } = kv as Message;
    return {
      key: this.#decode(key),
      value: this.#decode(value),
      createRevision: toBigInt(create_revision),
      modRevision: toBigInt(mod_revision),
      version: toBigInt(version),
      lease: toBigInt(lease),
    };
  }
}

/** The type of an event that deletes: its name, which transports spell differently, or its number. */
const DELETE = /^(delete|1)$/i;

/** The enumerations of the protocol by number: the spelling of their names differs between transports. */
const TARGETS = { version: 0, create: 1, mod: 2, value: 3, lease: 4 } as const;
const RESULTS = { "=": 0, ">": 1, "<": 2, "!=": 3 } as const;
const SORT_TARGETS = { key: 0, create: 2 } as const;
const SORT_ORDERS = { ascending: 1, descending: 2 } as const;

/** The field of the operand, by the target of a comparison. */
const FIELDS = {
  create: "create_revision",
  mod: "mod_revision",
  version: "version",
  lease: "lease",
  value: "value",
} as const;

/** Returns the first key after all keys with this prefix; a zero byte if there is none. */
function endOfPrefix(prefix: string): Uint8Array {
  const bytes = utf8.encode(prefix);
  // UTF-8 has no byte 255, so every byte can be raised.
  const last = bytes.length - 1;
  if (last < 0) return new Uint8Array(1);
  bytes[last] = (bytes[last] as number) + 1;
  return bytes;
}

export function toRevision({ header }: Message): Revision {
  return toBigInt((header as Message | undefined)?.revision);
}

export function toBigInt(number: unknown): bigint {
  return BigInt((number ?? 0) as string);
}

function list(messages: unknown): readonly Message[] {
  return (messages ?? []) as readonly Message[];
}
