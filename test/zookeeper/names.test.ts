import { assert, property, string } from "fast-check";
import { describe, expect, test } from "vitest";
import { checkRoot, decodeSegment, encodeSegment } from "../../core/zookeeper/names.ts";

describe("a lock's name as a node's", () => {
  test("is left as it is where it can be read", () => {
    for (const name of ["nightly-report", "a b", "a:b@c", "..a", "zookeepers"]) {
      expect(encodeSegment(name)).toBe(name);
    }
  });

  test("is one that ZooKeeper takes, and another one for each name", () => {
    const odd = ["", ".", "..", "zookeeper", "a/b", "%", "%2E", "%7Aookeeper", "\u0001", "\u007f"];
    const wide = ["é", "e\u0301", "🔒", "\ue000", "\ufeff", "\ufff0"];
    const segments = [...odd, ...wide].map(encodeSegment);
    expect(new Set(segments).size).toBe(segments.length);
    for (const segment of segments.slice(1)) expect(segment).toMatch(/^[ -.0-~]+$/);
    for (const reserved of [".", "..", "zookeeper"]) expect(segments).not.toContain(reserved);
  });

  test("is found again, and nothing else is taken for one", () => {
    assert(
      property(string({ unit: "binary", minLength: 1 }), (name) => {
        expect(decodeSegment(encodeSegment(name))).toBe(name);
      }),
    );
    for (const foreign of ["%lockstep", "%", "%2e", "é", "zookeeper", "%61"]) {
      expect(decodeSegment(foreign)).toBeUndefined();
    }
  });
});

test("the root is a path, or nothing", () => {
  for (const root of ["", "/a", "/a/b c"]) expect(() => checkRoot(root)).not.toThrow();
  for (const root of ["a", "/", "/a/", "//", "/a//b", "/a/../b", "/."]) {
    expect(() => checkRoot(root)).toThrow(RangeError);
  }
});
