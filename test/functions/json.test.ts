import { expect, onTestFinished, test } from "vitest";
import { openSqlite } from "../../core/stores/sqlite/index.ts";
import { formatJson } from "../../functions/display/format-json.ts";
import { cliInProcess } from "../support/cli-in-process.ts";
import { temporaryFile } from "../support/under-test.ts";

test("a value is one line of JSON, also with an object within itself", () => {
  const shared = { n: 1n };
  const value: Record<string, unknown> = { a: shared, b: [shared, new Set([shared])] };
  value.self = value;
  value.deep = new Map([["key", { value, later: Number.POSITIVE_INFINITY }]]);
  expect(JSON.parse(formatJson(value))).toEqual({
    a: { n: "1" },
    b: [{ n: "1" }, [{ n: "1" }]],
    self: null,
    deep: [["key", { value: null }]],
  });
});

test("a text steers no terminal", () => {
  const text = "\u0000 \u001b[31m \u007f \u009b31m";
  const json = formatJson({ [text]: [text] });
  expect(json).not.toMatch(/\p{Cc}/u);
  expect(JSON.parse(json)).toEqual({ [text]: [text] });
  expect(formatJson(undefined)).toBeUndefined();
});

test("the name of a lock steers no terminal through --json", async () => {
  const { file, remove } = await temporaryFile();
  onTestFinished(remove);
  await using store = await openSqlite(file);
  await using lock = await store.locks.lock("a\u009b31m", { ttl: "1m", wait: 0 });
  for (const words of [["list"], ["inspect", lock.name]]) {
    const { stdout } = await cliInProcess(...words, "--json", "--store", `sqlite:${file}`);
    expect(stdout).toContain("a\\u009b31m");
  }
});
