import { expect, test } from "vitest";
import { toJson } from "../../functions/cli/json.ts";

test("a value is one line of JSON, also with an object within itself", () => {
  const shared = { n: 1n };
  const value: Record<string, unknown> = { a: shared, b: [shared, new Set([shared])] };
  value.self = value;
  value.deep = new Map([["key", { value, later: Number.POSITIVE_INFINITY }]]);
  expect(JSON.parse(toJson(value))).toEqual({
    a: { n: "1" },
    b: [{ n: "1" }, [{ n: "1" }]],
    self: null,
    deep: [["key", { value: null }]],
  });
});
