import { isDeepStrictEqual } from "node:util";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { decode, encode, hashOf } from "../../core/steps/codec.ts";
import { anyValue, storableValue } from "../support/values.ts";

/** Whether the value survives, or is refused: both are honest. */
function isHonest(value: unknown): boolean {
  const text = tryEncode(value);
  return text === undefined || isDeepStrictEqual(decode(text), value);
}

function tryEncode(value: unknown): string | undefined {
  try {
    return encode(value);
  } catch (error) {
    if (error instanceof TypeError && /cannot be stored/.test(error.message)) return undefined;
    throw error;
  }
}

describe("a stored value", () => {
  test("is restored exactly, or refused", () => {
    fc.assert(fc.property(anyValue, isHonest), { numRuns: 500 });
  });

  test("is restored exactly if it is data", () => {
    const isRestored = (value: unknown) => isDeepStrictEqual(decode(encode(value)), value);
    fc.assert(fc.property(storableValue, isRestored), { numRuns: 500 });
  });

  test("is JSON that databases read if it is plain", () => {
    expect(encode({ a: [1, "b", null] })).toBe('{"json":{"a":[1,"b",null]}}');
  });

  test("keeps lone surrogates, -0 and the greatest numbers", () => {
    const value = ["\ud800", "\udc00a", -0, Number.MAX_VALUE, 2n ** 80n, "\u0000", "\u2028"];
    expect(decode(encode(value))).toStrictEqual(value);
  });

  test("keeps which of its parts are the same object", () => {
    const part = { at: new Date(1) };
    const copy = decode<readonly unknown[]>(encode([part, part]));
    expect(copy[0]).toBe(copy[1]);
  });

  test("may have objects as the keys of a map, even one that has no text", () => {
    const map = new Map([[{ toString: new Date(0) }, 0]]);
    expect(decode(encode(map))).toStrictEqual(map);
  });

  test("may contain itself, also in maps and sets", () => {
    const list: unknown[] = [1n];
    const map = new Map<unknown, unknown>([["list", list]]);
    list.push(map, list, new Set([map]), { list });
    const copy = decode<typeof list>(encode(list));
    const [, again, itself, set, object] = copy as [
      bigint,
      typeof map,
      unknown,
      Set<unknown>,
      object,
    ];
    expect([itself, again.get("list"), [...set][0], object]).toEqual([
      copy,
      copy,
      again,
      { list: copy },
    ]);
    expect([itself === copy, again.get("list") === copy, set.has(again)]).toEqual([
      true,
      true,
      true,
    ]);
    expect(hashOf(list)).toBe(hashOf(copy));
  });

  test("has its members, whatever a hidden toJSON says", () => {
    const toJSON = { value: () => "another value" };
    const value = Object.defineProperty({ a: 1 }, "toJSON", toJSON);
    expect(decode(encode([value]))).toEqual([{ a: 1 }]);
    expect(hashOf([value])).toBe(hashOf([{ a: 1 }]));
  });

  test("has the hash of any equal value", () => {
    const part = { constructor: 1, z: [-1] };
    expect(hashOf([part, part])).toBe(hashOf([{ ...part }, { z: [-1], constructor: 1 }]));
    expect(hashOf({ at: new Date(1) })).not.toBe(hashOf({ at: new Date(1).toISOString() }));
  });

  test.for<readonly [string, () => unknown, string]>([
    ["an array with empty slots", () => ({ a: Array(3) }), "at .a: an array with empty slots"],
    [
      "the match of a pattern",
      () => "ab".match(/b/),
      "at .index: a member of an instance of Array",
    ],
    ["a member with a symbol", () => [{ [Symbol("s")]: 1 }], "at [0][Symbol(s)]: a member"],
    [
      "an array with methods",
      () =>
        new (class Cart extends Array {
          total() {}
        })(),
      "an instance of Cart",
    ],
    [
      "a map with methods",
      () =>
        new (class Prices extends Map {
          total() {}
        })(),
      "an instance of Prices",
    ],
    [
      "an array with a member in place of a slot",
      // biome-ignore lint/suspicious/noSparseArray: the slot is the case.
      () => Object.assign([1, , 3], { total: 4 }),
      "an array with empty slots",
    ],
    ["a date with a member", () => Object.assign(new Date(1), { zone: 1 }), "at .zone: a member"],
    ["a typed array of a later year", () => new (float16())(2), "a Float16Array cannot be stored"],
    ["an error that contains itself", () => selfContaining(), "at .cause: an instance of Error"],
    [
      "binary data with methods",
      () =>
        new (class Vector extends Float64Array {
          length2() {}
        })(),
      "an instance of Vector",
    ],
    ["a boxed number", () => Object(1), "an instance of Number"],
  ])("that is %s is refused", ([, make, message]) => {
    expect(() => encode(make())).toThrow(message);
  });
});

describe("a hostile text", () => {
  test.for([
    '{"json":{"__proto__":{"polluted":1}}}',
    '{"json":{"a":1},"types":{"__proto__":{"polluted":"Date"}}}',
    '{"json":{"__proto__":"1"},"types":{"__proto__":"bigint"}}',
    '{"json":{"a":"1"},"types":{"constructor":{"prototype":{"polluted":"bigint"}}}}',
    '{"json":{"a":{"b":1},"__proto__":1},"types":{"a":["as",0,null],"__proto__":["same",0]}}',
    '{"json":[["__proto__",{"polluted":1}]],"types":"Map"}',
    '{"json":{"type":"constructor","base64":"AA=="},"types":"binary"}',
    '{"json":{"type":"__proto__","base64":"AA=="},"types":"binary"}',
    '{"json":{"name":"__proto__","message":"m"},"types":"error"}',
    '{"json":{"name":"e","message":"m","members":{"__proto__":{"polluted":1}}},"types":"error"}',
    '{"json":{"name":"polluted"},"types":"constructor"}',
    '{"json":{"name":"polluted"},"types":"__proto__"}',
  ])("never changes a prototype: %s", (text) => {
    const before = Object.getOwnPropertyNames(Object.prototype);
    try {
      decode(text);
    } catch (error) {
      expect(error).toMatchObject({ code: "UNREADABLE_VALUE" });
    }
    expect(Object.getOwnPropertyNames(Object.prototype)).toEqual(before);
    expect(({} as { polluted?: unknown }).polluted).toBeUndefined();
    expect((Object as unknown as { polluted?: unknown }).polluted).toBeUndefined();
  });

  test("has 500 levels at most", () => {
    const nested = (levels: number) => {
      let value: unknown = new Date(0);
      for (let level = 1; level < levels; level += 1) value = [value];
      return value;
    };
    expect(decode(encode(nested(500)))).toEqual(nested(500));
    const problem = "a value with more than 500 levels cannot be stored; return flatter data";
    for (const levels of [501, 100_000]) expect(() => encode(nested(levels))).toThrow(problem);
  });

  test.for([
    ...["", "1", "null", "[]", "{}", "{", '{"json":1,"meta":{"values":["Date"]}}'],
    ...['{"json":1,"types":"unknown"}', '{"json":[],"types":{"0":"Date"}}'],
    ...[
      '{"json":1,"types":{"0":"Date"}}',
      '{"json":1,"types":["same",0]}',
      '{"json":1,"types":"Map"}',
    ],
    ...[
      '{"json":"x","types":"bigint"}',
      '{"json":"x","types":"URL"}',
      '{"json":"(","types":"RegExp"}',
    ],
  ])("is unreadable: %s", (text) => {
    expect(() => decode(text)).toThrow(expect.objectContaining({ code: "UNREADABLE_VALUE" }));
  });
});

function selfContaining(): Error {
  const error = new Error("a");
  error.cause = error;
  return error;
}

function float16() {
  return (globalThis as unknown as { Float16Array: new (length: number) => object }).Float16Array;
}
