import { expect, test } from "vitest";
import type { LockRecord } from "../../../core/lock/holder.ts";
import { combine } from "../../../core/stores/redlock/info.ts";

const record = (fence: string, holder?: string): LockRecord => ({
  name: "a",
  holder,
  expiresIn: holder === undefined ? undefined : 1_000,
  fence,
  waiters: 0,
});

test("the fence of a holder is the one of its masters, also when one of them is silent and later claims have tried the others", () => {
  const said = [record("1", "x"), record("1", "x"), record("2"), record("3")];
  expect(combine("a", said, { needed: 3, silent: 1 })).toMatchObject({ holder: "x", fence: "1" });
});

test("with a silent master, a waiting claim on another one is not taken for the holder", () => {
  for (const said of [
    [record("1", "x"), record("2", "y")],
    [record("2", "y"), record("1", "x")],
  ]) {
    expect(combine("a", said, { needed: 2, silent: 1 })).toMatchObject({ holder: "x", fence: "1" });
  }
});

test("without a holder, the fence is one that a quorum may have reached", () => {
  const said = [record("1"), record("1"), record("2"), record("3")];
  expect(combine("a", said, { needed: 3, silent: 1 })).toMatchObject({
    holder: undefined,
    fence: "2",
  });
});
