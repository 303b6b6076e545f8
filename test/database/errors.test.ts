import { describe, expect, test } from "vitest";
import * as mysql from "../../core/stores/mysql/errors.ts";
import * as postgres from "../../core/stores/postgres/errors.ts";
import * as sqlite from "../../core/stores/sqlite/errors.ts";

/** Converts an error with these fields. */
const failing = <E extends object>(fields: E) => Object.assign(new Error("why"), fields);

const codeOf = (error: unknown) => (error as { readonly code?: string }).code;

describe("the outcome of a COMMIT", () => {
  test.each([
    [10, "an I/O error"],
    [522, "an I/O error of a short read"],
    [13, "a full disk"],
  ])("is unknown after SQLite's error %i, %s", (errcode) => {
    const error = failing({ errcode });
    expect(codeOf(sqlite.commitError("a", error))).toBe("UNKNOWN_OUTCOME");
    expect(codeOf(sqlite.uncommittedError("a", error))).toBe("STORE_UNAVAILABLE");
  });

  test.each([1047, 1053, 1180, 1927, 2006, 2013, 3032, 9001])(
    "is unknown after MySQL's error %i",
    (errno) => {
      const error = failing({ errno, sqlState: "HY000" });
      expect(codeOf(mysql.commitError("a", error, error))).toBe("UNKNOWN_OUTCOME");
    },
  );

  test.each(["08006", "08P01", "57P01", "57P02", "58030", "XX000", "25P04"])(
    "is unknown after PostgreSQL's error %s",
    (code) => {
      const error = failing({ code });
      expect(codeOf(postgres.commitError("a", error, error))).toBe("UNKNOWN_OUTCOME");
    },
  );
});

describe("a transaction of MySQL without a COMMIT", () => {
  const errorOf = (errno: number) => failing({ errno, sqlState: "HY000" });

  test.each([
    [1317, "KILL QUERY"],
    [1969, "MariaDB's max_statement_time"],
    [3024, "max_execution_time"],
  ])("may be repeated after error %i, of %s, and a COMMIT is unknown", (errno) => {
    const error = errorOf(errno);
    expect(codeOf(mysql.uncommittedError("a", error, error))).toBe("STORE_UNAVAILABLE");
    expect(codeOf(mysql.commitError("a", error, error))).toBe("UNKNOWN_OUTCOME");
  });

  test("is refused by safe updates, and a lone change is, too", () => {
    const error = errorOf(1175);
    expect(codeOf(mysql.uncommittedError("a", error, error))).toBe("STORE_REFUSED");
    expect(codeOf(mysql.commitError("a", error, error))).toBe("STORE_REFUSED");
  });
});

describe("the advice after a refusal by PostgreSQL", () => {
  test.each([
    ["42P01", 'relation "lockstep_lock" does not exist', "lockstep migrate"],
    ["42883", "function lockstep_drop(unknown, unknown) does not exist", "lockstep migrate"],
    ["42501", "permission denied for function lockstep_drop", "docs/stores/postgres.md"],
    ["42501", "permission denied for table lockstep_lock", "docs/stores/postgres.md"],
  ])("of code %s, %s, names %s", (code, text, advice) => {
    const error = Object.assign(new Error(text), { code });
    const refusal = postgres.uncommittedError("a", error, error);
    expect(refusal).toMatchObject({
      code: "STORE_REFUSED",
      message: expect.stringContaining(advice),
    });
  });

  test("the advice is left out for tables and functions of the user", () => {
    const error = Object.assign(new Error("permission denied for table orders"), { code: "42501" });
    expect(postgres.uncommittedError("a", error, error).message).not.toContain("docs/");
  });
});
