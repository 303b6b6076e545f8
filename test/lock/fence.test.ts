import fc from "fast-check";
import { describe, expect, test } from "vitest";
import {
  checkFence,
  compareFence,
  type Fence,
  FencedOutError,
  FenceInvalidError,
  fenceOwner,
  issueFence,
  openFence,
  sealFence,
} from "../../core/lock/fence.ts";

import { openMemory } from "../../core/stores/memory/index.ts";

const SECRET = "a secret of more than 16 bytes";

const fences = fc
  .tuple(fc.nat({ max: 2 ** 23 - 1 }), fc.bigInt({ min: 0n, max: 2n ** 63n - 1n }))
  .map(([generation, token]) => issueFence("a", generation, token, "me"));

describe("a fence", () => {
  test("that is late names the store that may have lost its fences: that of the runs for an entity", () => {
    const problem = (resource: string) =>
      new FencedOutError(issueFence(resource, 0, 1n, "me"), "0000000001.0000000000000000002")
        .message;
    expect(problem("sku/cup")).toContain("the lock store has lost its fences");
    expect(problem("entity/account/ada")).toContain("the store of the runs has lost its fences");
  });

  test("is ordered by generation, then by token, and its text sorts the same way", () => {
    fc.assert(
      fc.property(fences, fences, (a, b) => {
        const byNumber =
          Math.sign(a.generation - b.generation) ||
          (a.token < b.token ? -1 : a.token > b.token ? 1 : 0);
        expect(compareFence(a, b)).toBe(byNumber);
        const [x, y] = [String(a), String(b)];
        expect(x < y ? -1 : x > y ? 1 : 0).toBe(byNumber);
        expect(x).toHaveLength(31);
      }),
    );
  });

  test("or its text releases the lock that has it", async () => {
    await using store = await openMemory();
    const [a, b] = await Promise.all(
      ["a", "b"].map((name) => store.locks.lock(name, { ttl: 60_000, wait: 0 })),
    );
    if (!a || !b) throw new Error("unreachable");
    expect(await store.locks.release("a", { fence: a.fence })).toMatchObject({ name: "a" });
    expect(await store.locks.release("b", { fence: String(b.fence) })).toMatchObject({ name: "b" });
    expect(await store.locks.list()).toEqual([]);
    const other = { fence: {} as Fence };
    await expect(store.locks.release("a", other)).rejects.toThrow("a fence is a text such as");
  });

  test("has no order with a fence of another resource", () => {
    const fence = issueFence("a", 0, 1n, "me");
    expect(() => compareFence(fence, issueFence("b", 0, 2n, "me"))).toThrow(TypeError);
  });

  test("is exact above 2^53", () => {
    const fence = issueFence("a", 0, 2n ** 53n + 1n, "me");
    expect(compareFence(fence, issueFence("a", 0, 2n ** 53n, "me"))).toBe(1);
    expect(String(fence)).toBe("0000000000.00009007199254740993");
  });

  test("is accepted only if a lock has issued it", () => {
    const fence = issueFence("a", 0, 1n, "me");
    checkFence(fence, "a");
    expect(() => checkFence(fence, "b")).toThrow(FenceInvalidError);
    const Issued = fence.constructor as new (...parts: unknown[]) => Fence;
    class Forged extends Issued {}
    const forged: unknown[] = [
      new Issued("a", 0, 2n ** 40n - 1n, "me"),
      new Forged("a", 0, 2n ** 40n - 1n, "me"),
      { ...fence },
      { resource: "a", generation: 0, token: 2n ** 63n - 1n, toString: () => "" },
      Object.create(fence as object),
      undefined,
      null,
      "0000000000.00000000000000000001",
    ];
    for (const one of forged) {
      expect(() => checkFence(one as Fence, "a")).toThrow(FenceInvalidError);
    }
  });

  test("is not issued for a generation or a token out of range", () => {
    issueFence("a", 2 ** 23 - 1, 2n ** 63n - 1n, "me");
    for (const generation of [-1, 0.5, Number.NaN, 2 ** 23]) {
      expect(() => issueFence("a", generation, 1n, "me")).toThrow(RangeError);
    }
    for (const token of [-1n, 2n ** 63n]) {
      expect(() => issueFence("a", 0, token, "me")).toThrow(RangeError);
    }
  });

  test("cannot be changed", () => {
    const fence = issueFence("a", 0, 1n, "me") as { token: bigint };
    expect(() => {
      fence.token = 2n;
    }).toThrow(TypeError);
  });
});

describe("a sealed fence", () => {
  test("opens to the same fence in another process with the same secret", async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.string({ minLength: 1, unit: "grapheme" }),
        fences,
        async (name, { token }) => {
          const fence = issueFence(name, 3, token, "host:1/owner");
          const opened = await openFence(await sealFence(fence, SECRET), SECRET);
          checkFence(opened, name);
          expect(compareFence(opened, fence)).toBe(0);
          expect(fenceOwner(opened)).toBe("host:1/owner");
        },
      ),
    );
  });

  test("does not open with another secret, or after a change of one character", async () => {
    const sealed = await sealFence(issueFence("sku/a", 1, 7n, "me"), SECRET);
    await expect(openFence(sealed, `${SECRET}!`)).rejects.toThrow(FenceInvalidError);
    for (let i = 0; i < sealed.length; i += 1) {
      const changed = `${sealed.slice(0, i)}${sealed[i] === "1" ? "2" : "1"}${sealed.slice(i + 1)}`;
      await expect(openFence(changed, SECRET)).rejects.toThrow(FenceInvalidError);
    }
    for (const text of ["", "a:b", `${sealed}0`, sealed.slice(1)]) {
      await expect(openFence(text, SECRET)).rejects.toThrow(FenceInvalidError);
    }
  });

  test("needs an issued fence and a secret of at least 16 bytes", async () => {
    const fence = issueFence("a", 0, 1n, "me");
    await expect(sealFence({ ...fence }, SECRET)).rejects.toThrow(FenceInvalidError);
    await expect(sealFence(fence, "too short")).rejects.toThrow(RangeError);
  });
});
