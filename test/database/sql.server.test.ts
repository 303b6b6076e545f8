import fc from "fast-check";
import { describe, expect, inject, test } from "vitest";
import {
  type Database,
  list,
  raw,
  type Sql,
  sql,
  type Transaction,
} from "../../core/database/sql.ts";
import { sqliteDatabase } from "../../core/stores/sqlite/database.ts";
import { temporaryDatabase } from "../support/under-test.ts";

test("a placeholder takes a value or SQL, and never becomes text", () => {
  const where = sql`a = ${1} AND b = ${"x' OR 1"}`;
  expect(sql`SELECT ${2} FROM t WHERE ${where} LIMIT ${3}`).toEqual({
    texts: ["SELECT ", " FROM t WHERE a = ", " AND b = ", " LIMIT ", ""],
    values: [2, 1, "x' OR 1", 3],
  });
  expect(sql`${sql`a`}${sql`b`}`).toEqual({ texts: ["ab"], values: [] });
  expect(sql`IN (${list([1, sql`now`, "c"])})`).toEqual({
    texts: ["IN (", ", now, ", ")"],
    values: [1, "c"],
  });
  expect(() => list([])).toThrow(RangeError);
});

test.each([{ texts: ["1 OR 1 = 1"], values: [] }, ["1); DROP TABLE seat; --"], new Date(0)])(
  "an object in the place of a value is refused, whatever its fields: %j",
  (input) => {
    const value = input as unknown as string;
    expect(() => sql`SELECT * FROM seat WHERE id = ${value}`).toThrow(/^a value in SQL must be/);
    expect(() => list([value])).toThrow(TypeError);
  },
);

test("a number that is not finite is refused, which SQLite would store as NULL", () => {
  for (const value of [Number.NaN, Number.POSITIVE_INFINITY]) {
    expect(() => sql`SELECT ${value}`).toThrow(`a number in SQL must be finite, not ${value}`);
  }
});

/** Nested parts and values join to one more text than values, in order. */
test("nested SQL keeps its texts and values in order", () => {
  const { piece } = fc.letrec<{ piece: Sql }>((tie) => ({
    piece: fc.oneof(
      { maxDepth: 4 },
      fc.constant(sql`x`),
      fc.nat().map((value) => sql`[${value}]`),
      fc.tuple(tie("piece"), tie("piece")).map(([a, b]) => sql`(${a}, ${b})`),
      fc.array(tie("piece"), { minLength: 1, maxLength: 4 }).map((pieces) => list(pieces)),
    ),
  }));
  const flat = ({ texts, values }: Sql) =>
    texts.map((text, i) => text + (i < values.length ? values[i] : "")).join("");
  fc.assert(
    fc.property(piece, piece, (a, b) => {
      const joined = sql`${a}-${b}`;
      expect(joined.texts.length).toBe(joined.values.length + 1);
      expect(flat(joined)).toBe(`${flat(a)}-${flat(b)}`);
    }),
  );
});

const servers = [...inject("sqlServers"), ...inject("postgresServers")];

test.each(servers.map(({ name }) => name))(
  "a missing table of ours is made by migrate, another one is not, on %s",
  async (name) => {
    const server = servers.find((one) => one.name === name);
    if (!server) throw new Error("there is no such server");
    const { open, drop } = await temporaryDatabase(server);
    await using database = open();
    const ours = database.read(sql`SELECT 1 FROM lockstep_lock`);
    await expect(ours).rejects.toThrow(/lockstep_lock['"] does.* exist.*`lockstep migrate`/);
    const theirs = database.read(sql`SELECT 1 FROM seat`);
    await expect(theirs).rejects.toThrow(/seat['"] does.* exist$/);
    await drop();
  },
);

const awkward = [
  "",
  "a",
  "'",
  "''",
  '"',
  "\\",
  "\\'",
  "a'; DROP TABLE echo; --",
  "%_",
  "?",
  ";\nCOMMIT",
  "\u00bf'\u00bf\\",
  "é",
  "🫖",
  "\ufeff",
  " ",
];

const opened: [
  name: string,
  open: () => Promise<{ database: Database; close(): Promise<void> }>,
][] = [
  [
    "sqlite",
    async () => {
      const database = sqliteDatabase(":memory:");
      return { database, close: () => database.close() };
    },
  ],
  ...servers.map((server): (typeof opened)[number] => [
    server.name,
    async () => {
      const { open, drop } = await temporaryDatabase(server);
      const database = open();
      return {
        database,
        async close() {
          await database.close();
          await drop();
        },
      };
    },
  ]),
];

describe.each(opened)("a database on %s", (name, open) => {
  const type = ["sqlite", "postgres"].includes(name) ? "TEXT" : "VARBINARY(255)";
  const table = raw(`CREATE TABLE echo (value ${type} PRIMARY KEY, number BIGINT)`);

  test("stores any text and any integer unchanged", async () => {
    const { database, close } = await open();
    await database.batch([table]);
    const numbers = [0n, -1n, 2n ** 53n + 1n, 2n ** 63n - 1n];
    for (const [i, text] of awkward.entries()) {
      await database.batch([sql`INSERT INTO echo VALUES (${text}, ${numbers[i % 4] ?? 0n})`]);
    }
    for (const [i, text] of awkward.entries()) {
      const [row] = await database.read(sql`SELECT value, number FROM echo WHERE value = ${text}`);
      expect(String(row?.value)).toBe(text);
      expect(BigInt(row?.number as string)).toBe(numbers[i % 4]);
    }
    await close();
  });

  test("ends a comment with its statement", async () => {
    const { database, close } = await open();
    await database.batch([table]);
    await database.batch([
      sql`INSERT INTO echo VALUES ('a', 1) -- the first`,
      sql`INSERT INTO echo VALUES ('b', 2) -- the last`,
    ]);
    expect(await database.read(sql`SELECT value FROM echo -- all`)).toHaveLength(2);
    await database.transaction(async (tx) => {
      await tx.batch([sql`DELETE FROM echo WHERE value = 'b' -- one`]);
      await tx.commit([sql`DELETE FROM echo WHERE value = 'a' -- the other`]);
    });
    await expect(database.read(sql`SELECT nonsense`)).rejects.toThrow();
    expect(await database.read(sql`SELECT value FROM echo`)).toEqual([]);
    await close();
  });

  test("takes one statement at a time, and none that begins or ends a transaction", async () => {
    const { database, close } = await open();
    await database.batch([table]);
    const insert = sql`INSERT INTO echo VALUES ('a', 1)`;
    const control = "the calls of a database begin and end its transactions";
    const wrong: readonly (readonly [Sql, string])[] = [
      [sql`BEGIN`, control],
      [sql`  start transaction`, control],
      [sql`COMMIT`, control],
      [sql`ROLLBACK TO x`, control],
      [sql`INSERT INTO echo VALUES ('b', 2); INSERT INTO echo VALUES ('c', 3)`, "semicolon"],
      [sql`DELETE FROM echo ${sql`; DELETE FROM echo`}`, "semicolon"],
    ];
    for (const [statement, problem] of wrong) {
      await expect(database.batch([insert, statement])).rejects.toThrow(problem);
      await expect(database.read(statement)).rejects.toThrow(problem);
      const transacting = database.transaction(async (tx) => {
        await tx.batch([insert]);
        await tx.batch([statement]);
      });
      await expect(transacting).rejects.toThrow(problem);
    }
    await expect(database.read(insert)).rejects.toThrow("read takes a statement that reads");
    expect(await database.read(sql`SELECT value FROM echo`)).toEqual([]);
    await database.batch([sql`INSERT INTO echo VALUES ('a;b', 1) /* ; */`]);
    expect(await database.read(sql`SELECT value FROM echo WHERE value = 'a;b'`)).toHaveLength(1);
    await close();
  });

  test("counts the rows of a statement that answers with rows", async () => {
    const { database, close } = await open();
    await database.batch([table, sql`INSERT INTO echo VALUES ('a', 1), ('b', 2)`]);
    if (database.dialect.returnsRows) {
      const [changed] = await database.batch([
        sql`DELETE FROM echo WHERE number > 0 RETURNING value`,
      ]);
      expect(changed).toMatchObject({
        affected: 2,
        rows: expect.toSatisfy((rows) => rows.length === 2),
      });
    } else {
      const [read] = await database.batch([sql`SELECT value FROM echo`]);
      expect(read).toMatchObject({ affected: 2 });
    }
    await close();
  });

  test("a text stands for a number wherever the database expects one", async () => {
    const { database, close } = await open();
    await database.batch([
      sql`CREATE TABLE number (id INTEGER PRIMARY KEY, price DECIMAL(9, 2))`,
      sql`INSERT INTO number VALUES (1, 0), (50, 0)`,
    ]);
    const [one, price] = ["1", "19.99"];
    await database.batch([sql`UPDATE number SET price = ${price} WHERE id = ${one}`]);
    await database.batch([sql`UPDATE number SET id = id + ${"2"} WHERE id = ${one}`]);
    const [row] = await database.read(sql`SELECT id, price FROM number WHERE id = ${"3"}`);
    expect(Number(row?.id)).toBe(3);
    expect(Number(row?.price)).toBe(19.99);
    await close();
  });

  test("commits a batch as a whole or not at all", async () => {
    const { database, close } = await open();
    await database.batch([table]);
    const insert = (value: string) => sql`INSERT INTO echo VALUES (${value}, 1)`;
    await database.batch([insert("a"), insert("b")]);
    await expect(database.batch([insert("c"), insert("a"), insert("d")])).rejects.toMatchObject({
      ...{ name: "DuplicateKeyError", code: "DUPLICATE_KEY", retryable: false },
    });
    const count = async () =>
      Number((await database.read(sql`SELECT COUNT(*) AS n FROM echo`))[0]?.n);
    expect(await count()).toBe(2);
    await database.transaction(async (tx) => {
      await tx.batch([insert("e")]);
    });
    expect(await count()).toBe(2);
    const fault = new Error("the body's own");
    const failing = database.transaction(async (tx) => {
      await tx.batch([insert("f")]);
      throw fault;
    });
    await expect(failing).rejects.toBe(fault);
    expect(await count()).toBe(2);
    await database.transaction(async (tx) => {
      await tx.batch([insert("g")]);
      await tx.commit([insert("h")]);
    });
    expect(await count()).toBe(4);
    await expect(database.batch([insert("i"), sql`NONSENSE`])).rejects.toMatchObject({
      code: "STORE_REFUSED",
    });
    expect(await count()).toBe(4);
    await close();
  });

  test("refuses calls of a transaction after its failure, its commit and its body", async () => {
    const { database, close } = await open();
    await database.batch([table]);
    const insert = (value: string) => sql`INSERT INTO echo VALUES (${value}, 1)`;
    const count = async () =>
      Number((await database.read(sql`SELECT COUNT(*) AS n FROM echo`))[0]?.n);
    await database.batch([insert("a")]);
    let late: Transaction | undefined;
    await database.transaction(async (tx) => {
      late = tx;
      await tx.batch([insert("b")]);
      const duplicate = { name: "DuplicateKeyError" };
      await expect(tx.batch([insert("a")])).rejects.toMatchObject(duplicate);
      await expect(tx.batch([insert("c")])).rejects.toMatchObject(duplicate);
      await expect(tx.commit([])).rejects.toMatchObject(duplicate);
    });
    const ended = { code: "STORE_REFUSED", message: expect.stringContaining("has ended") };
    await expect(late?.batch([insert("d")])).rejects.toMatchObject({ name: "DuplicateKeyError" });
    await database.transaction(async (tx) => {
      late = tx;
      await tx.commit([insert("e")]);
      await expect(tx.batch([insert("f")])).rejects.toMatchObject(ended);
    });
    await expect(late?.batch([insert("g")])).rejects.toMatchObject(ended);
    const fault = new Error("the body's own");
    const careless = database.transaction(async (tx) => {
      late = tx;
      void tx.batch([insert("h")]);
      throw fault;
    });
    await expect(careless).rejects.toBe(fault);
    await expect(late?.commit([insert("i")])).rejects.toMatchObject(ended);
    // A call without an await must not fail after the commit.
    const unseen = database.transaction(async (tx) => {
      tx.batch([insert("a")]).catch(() => {});
      await tx.commit([insert("j")]);
    });
    await expect(unseen).rejects.toMatchObject({ name: "DuplicateKeyError" });
    expect(await count()).toBe(2);
    await close();
  });

  test("leaves a body behind that goes on after its limit, and refuses its late calls", async () => {
    const { database, close } = await open();
    await database.batch([table]);
    const insert = (value: string) => sql`INSERT INTO echo VALUES (${value}, 1)`;
    const goesOn = new Promise<void>(() => {});
    let late: Transaction | undefined;
    const given = new AbortController();
    const uncommitted = database.transaction(async (tx) => {
      late = tx;
      await tx.batch([insert("a")]);
      setTimeout(() => given.abort("enough"));
      await goesOn;
    }, given.signal);
    const problem = { code: "STORE_UNAVAILABLE", cause: "enough" };
    await expect(uncommitted).rejects.toMatchObject(problem);
    await expect(late?.commit([insert("b")])).rejects.toThrow();
    expect(await database.read(sql`SELECT value FROM echo`)).toEqual([]);
    const afterwards = new AbortController();
    const committed = database.transaction(async (tx) => {
      await tx.commit([insert("c")]);
      setTimeout(() => afterwards.abort("enough"));
      await goesOn;
    }, afterwards.signal);
    await expect(committed).rejects.toMatchObject({ code: "UNKNOWN_OUTCOME", cause: "enough" });
    expect(await database.read(sql`SELECT value FROM echo`)).toHaveLength(1);
    await close();
  });

  test("refuses calls after its close", async () => {
    const { database, close } = await open();
    await database.read(sql`SELECT 1`);
    await database.close();
    await expect(database.read(sql`SELECT 1`)).rejects.toMatchObject({ code: "STORE_CLOSED" });
    await close();
  });
});
