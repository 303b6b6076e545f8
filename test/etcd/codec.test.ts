import { describe, expect, test } from "vitest";
import { get, isCreated, put } from "../../core/stores/etcd/client/etcd.ts";
import { type BytesFormat, base64, MessageCodec } from "../../core/stores/etcd/client/wire.ts";

const raw: BytesFormat<Uint8Array> = {
  encode: (bytes) => bytes,
  decode: (bytes) => (bytes ?? new Uint8Array()) as Uint8Array,
};

/** Above 2^53, and above 2^62. */
const [EVEN, ODD] = ["9007199254740992", "9223372036854775807"];

const utf8 = (text: string) => new TextEncoder().encode(text);

describe.each([
  ["as they are", raw],
  ["in base64", base64],
])("with bytes %s", (_, bytes) => {
  const codec = new MessageCodec(bytes);
  const encode = (text: string) => bytes.encode(utf8(text));

  test("numbers above 2^53 are exact", () => {
    const kv = {
      key: encode("a"),
      value: encode(""),
      create_revision: EVEN,
      mod_revision: ODD,
      version: ODD,
      lease: ODD,
    };
    const answer = codec.toRangeAnswer({ header: { revision: ODD }, kvs: [kv], count: "1" });
    expect(answer.revision).toBe(BigInt(ODD));
    expect(answer.kvs[0]).toMatchObject({
      createRevision: BigInt(EVEN),
      modRevision: BigInt(ODD),
      version: BigInt(ODD),
      lease: BigInt(ODD),
    });
    const txn = { when: [isCreated("a", BigInt(ODD))], do: [put("a", "", BigInt(ODD))] };
    expect(codec.txn(txn)).toMatchObject({
      compare: [{ create_revision: ODD }],
      success: [{ request_put: { lease: ODD } }],
    });
  });

  test("fields with their default value may be missing", () => {
    expect(codec.toTxnAnswer({})).toEqual({ succeeded: false, revision: 0n, answers: [] });
    expect(codec.toRangeAnswer({})).toEqual({ kvs: [], count: 0, revision: 0n });
    const [change] = codec.toChanges([{ kv: { key: encode("a"), mod_revision: "7" } }]);
    expect(change).toEqual({
      type: "put",
      key: "a",
      value: "",
      createRevision: 0n,
      modRevision: 7n,
      lease: 0n,
    });
  });

  test.each([
    ["a/", "a0"],
    ["é", "ê"],
    ["", "\0"],
  ])("the keys with prefix %j end before %j", (prefix, end) => {
    expect(codec.get(get({ prefix })).range_end).toEqual(encode(end));
  });

  test("a text is unchanged after a round trip", () => {
    for (const text of ["", "\0", "\u{feff}a", "😀", "a\u{301}", "\u{10ffff}"]) {
      const kvs = [{ key: encode(text), value: encode(text) }];
      expect(codec.toRangeAnswer({ kvs }).kvs).toMatchObject([{ key: text, value: text }]);
    }
  });
});

test("base64 encodes all bytes, and many of them", () => {
  const bytes = Uint8Array.from({ length: 1_000_000 }, (_, at) => at % 256);
  expect(base64.decode(base64.encode(bytes))).toEqual(bytes);
  expect(base64.encode(bytes)).toBe(Buffer.from(bytes).toString("base64"));
});
