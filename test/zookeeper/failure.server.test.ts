import { describe, expect, test } from "vitest";
import { toError } from "../../core/stores/zookeeper/client/failure.ts";

/** The codes of KeeperException.Code, and some beyond them. */
const CODES = Array.from({ length: 130 }, (_, i) => -1 - i);

/** The codes that a server answers only before a request has any effect. */
const CERTAIN = [-6, -8, -101, -102, -103, -108, -110, -111, -112, -114, -115, -118, -119];
const LATER = [-124, -125, -127];

const outcomeOf = (code: number, writes: boolean) => {
  const error = toError("zookeeper", code, writes);
  return "code" in error ? error.code : error.name;
};

describe("an error code", () => {
  test("leaves the outcome of a write open, unless it only comes before any effect", () => {
    const certain = CODES.filter((code) => outcomeOf(code, true) !== "UNKNOWN_OUTCOME");
    expect(certain).toEqual([...CERTAIN, ...LATER]);
  });

  test("is never an unknown outcome of a read", () => {
    const unknown = CODES.filter((code) => outcomeOf(code, false) === "UNKNOWN_OUTCOME");
    expect(unknown).toEqual([]);
  });

  test("means a refusal or an unavailable store", () => {
    const passing = CODES.filter((code) => outcomeOf(code, true) === "STORE_UNAVAILABLE");
    expect(passing).toEqual([-118, -119, -127]);
    const refused = CODES.filter((code) => outcomeOf(code, true) === "STORE_REFUSED");
    expect(refused).toEqual([-6, -8, -102, -108, -111, -114, -115, -124, -125]);
  });
});
