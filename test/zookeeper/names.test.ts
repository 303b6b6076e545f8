import { assert, constantFrom, integer, property, string } from "fast-check";
import { describe, expect, test } from "vitest";
import { checkRoot, nameOf, queueOf } from "../../core/stores/zookeeper/client/names.ts";

describe("a lock's name as a path", () => {
  test("is literal if ZooKeeper accepts the name", () => {
    const names = [
      "nightly-report",
      "a b",
      "a:b@c",
      "..a",
      "zookeepers",
      "a/zookeeper",
      "é",
      "100%",
    ];
    for (const name of [...names, "locks/a", "sku/teapot/1700000000", "a%/b", "a%2e"]) {
      expect(queueOf("", name)).toBe(`/${name}`);
      expect(queueOf("/shop", name)).toBe(`/shop/${name}`);
    }
    expect(queueOf("/shop", "zookeeper")).toBe("/shop/zookeeper");
  });

  test("is valid in ZooKeeper, and different for each name", () => {
    const slashes = [
      "a",
      "/a",
      "a/",
      "//a",
      "a//",
      "/",
      "//",
      "a/b",
      "a//b",
      "a/./b",
      "a/../b",
      "%2F",
    ];
    const odd = [
      ".",
      "..",
      "%2E",
      "zookeeper",
      "zookeeper/quota",
      "%7Aookeeper",
      "%lockstep",
      "%",
      "%%2F",
    ];
    const wide = ["é", "e\u0301", "🔒", "\ue000", "\ufeff", "\ufff0", "\u0001", "\u007f", "\u0080"];
    const paths = [...slashes, ...odd, ...wide].map((name) => queueOf("", name));
    expect(new Set(paths).size).toBe(paths.length);
    for (const path of paths) {
      expect(() => checkRoot(path)).not.toThrow();
      expect(path).toMatch(/^[ -~\u00a0-\ud7ff\uf900-\uffef]+$/);
      expect(path).not.toMatch(/^\/(zookeeper|%lockstep)(\/|$)/);
    }
  });

  test("is decoded again, and no other path is decoded", () => {
    const any = integer({ min: 1, max: 0x10ffff }).map((code) => String.fromCodePoint(code));
    const wellFormed = any.filter((char) => char.isWellFormed());
    for (const unit of [wellFormed, constantFrom("/", ".", "%", "2", "F", "E", "a")]) {
      assert(
        property(string({ unit, minLength: 1 }), (name) => {
          for (const root of ["", "/a/b"]) expect(nameOf(root, queueOf(root, name))).toBe(name);
        }),
      );
    }
    for (const foreign of [
      "%lockstep",
      "%lockstep/generation",
      "%C3%A9",
      "zookeeper",
      "%61",
      "%FF",
      "a/%2E%2E",
    ]) {
      expect(nameOf("", `/${foreign}`)).toBeUndefined();
    }
  });
});

test("the root is a path, or empty", () => {
  for (const root of ["", "/a", "/a/b c"]) expect(() => checkRoot(root)).not.toThrow();
  for (const root of ["a", "/", "/a/", "//", "/a//b", "/a/../b", "/.", "/a\u0001b", "/\u{1f600}"]) {
    expect(() => checkRoot(root)).toThrow(RangeError);
  }
});
