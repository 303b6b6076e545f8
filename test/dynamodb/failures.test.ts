import { describe, expect, test, vi } from "vitest";
import { dynamodbClient } from "../../core/stores/dynamodb/client/client.ts";
import type { DynamodbOptions } from "../../core/stores/dynamodb/client/dynamodb.ts";
import { dynamodbTable } from "../../core/stores/dynamodb/client/table.ts";
import { dynamodbJournal } from "../../core/stores/dynamodb/journal/index.ts";
import { dynamodbLocks } from "../../core/stores/dynamodb/locks/index.ts";
import type { Fetch, FetchAnswer } from "../../core/stores/fetch.ts";

const KEY = { pk: "a", sk: "b" };

const update = { key: KEY, update: "SET #x = :x", when: "attribute_exists(#pk)", values: { x: 1 } };

const options = {
  region: "eu-west-1",
  table: "shop",
  credentials: { accessKeyId: "key", secretAccessKey: "a secret" },
};

/** Answers that DynamoDB Local does not give on demand, in order; the last one also later. */
function clientOf(answers: readonly (FetchAnswer | Error)[], more: Partial<DynamodbOptions> = {}) {
  const targets: string[] = [];
  const fetch: Fetch = async (_, { headers }) => {
    targets.push(headers["x-amz-target"]?.split(".")[1] ?? "");
    const answer = answers[Math.min(targets.length, answers.length) - 1] as FetchAnswer | Error;
    if (answer instanceof Error) throw answer;
    return answer;
  };
  return { dynamodb: dynamodbClient({ ...options, fetch, ...more }), targets };
}

function answer(
  status: number,
  body: object | string,
  type = "application/x-amz-json-1.0",
): FetchAnswer {
  const text = typeof body === "string" ? body : JSON.stringify(body);
  const headers = new Headers({ "content-type": type });
  return { status, headers, body: null, text: async () => text };
}

const exception = (code: string, more: object = {}) =>
  answer(400, { __type: `com.amazonaws.dynamodb.v20120810#${code}`, message: "why", ...more });

const cancelled = (...codes: readonly string[]) =>
  exception("TransactionCanceledException", {
    CancellationReasons: codes.map((Code) => ({ Code })),
  });

const connectError = Object.assign(new Error("refused"), { syscall: "connect" });

describe("the outcome of a write", () => {
  test.each([
    ["ContinuousBackupsUnavailableException"],
    ["ProvisionedThroughputExceededException"],
    ["ThrottlingException"],
    ["RequestLimitExceeded"],
    ["TransactionConflictException"],
  ])("%s is passing: the write is sent again", async (code) => {
    const { dynamodb, targets } = clientOf([exception(code), exception(code), answer(200, {})]);
    expect(await dynamodb.write([update])).toMatchObject({ done: true });
    expect(targets).toEqual(["UpdateItem", "UpdateItem", "UpdateItem"]);
  });

  test("a transaction that conflicts with another one is sent again", async () => {
    const { dynamodb, targets } = clientOf([
      cancelled("None", "TransactionConflict"),
      answer(200, {}),
    ]);
    expect(await dynamodb.write([update, update])).toMatchObject({ done: true });
    expect(targets).toEqual(["TransactWriteItems", "TransactWriteItems"]);
  });

  test("a condition that does not hold beside a conflict is asked for again: the other one may not hold either", async () => {
    const { dynamodb, targets } = clientOf([
      cancelled("TransactionConflict", "ConditionalCheckFailed"),
      cancelled("ConditionalCheckFailed", "ConditionalCheckFailed"),
    ]);
    expect(await dynamodb.write([update, update])).toMatchObject({ failed: [true, true] });
    expect(targets).toHaveLength(2);
  });

  test("a condition that does not hold is an answer", async () => {
    const { dynamodb } = clientOf([
      exception("ConditionalCheckFailedException", { Item: { x: { N: "7" }, y: { S: "z" } } }),
    ]);
    expect(await dynamodb.write([update])).toMatchObject({
      done: false,
      items: [{ x: "7", y: "z" }],
    });
  });

  test("requests that are throttled for as long as the caller waits have not happened", async () => {
    const { dynamodb } = clientOf([exception("ThrottlingException")]);
    await expect(dynamodb.write([update], AbortSignal.timeout(200))).rejects.toMatchObject({
      code: "STORE_UNAVAILABLE",
    });
  });

  test.each([
    ["AccessDeniedException"],
    ["ValidationException"],
    ["ExpiredTokenException"],
    ["UnrecognizedClientException"],
    ["ItemCollectionSizeLimitExceededException"],
  ])("%s is a refusal, which is not sent again", async (code) => {
    const { dynamodb, targets } = clientOf([exception(code)]);
    await expect(dynamodb.write([update])).rejects.toMatchObject({
      code: "STORE_REFUSED",
      message: expect.stringContaining(code),
    });
    expect(targets).toHaveLength(1);
  });

  test("a missing table says how to make one", async () => {
    const { dynamodb } = clientOf([exception("ResourceNotFoundException")]);
    await expect(dynamodb.get(KEY)).rejects.toMatchObject({
      code: "STORE_REFUSED",
      message: expect.stringContaining("lockstep migrate"),
    });
  });

  test.each([
    ["an internal error", answer(500, { __type: "x#InternalServerError", message: "" })],
    ["an unavailable service", answer(503, "Service Unavailable")],
    ["a proxy's 429", answer(429, "slow down")],
    ["a redirection", answer(302, "")],
    ["an answer that is no JSON", answer(200, "<html>")],
    ["a proxy's JSON", answer(200, { status: "ok" }, "application/json")],
    ["a transaction in progress", exception("TransactionInProgressException")],
    ["a connection that broke", new Error("reset")],
  ])("%s leaves a write unknown, and a read undone", async (_, given) => {
    const { dynamodb, targets } = clientOf([given]);
    await expect(dynamodb.write([update])).rejects.toMatchObject({ code: "UNKNOWN_OUTCOME" });
    await expect(dynamodb.get(KEY)).rejects.toMatchObject({ code: "STORE_UNAVAILABLE" });
    expect(targets).toEqual(["UpdateItem", "GetItem"]);
  });

  test("a write without a connection has not happened", async () => {
    const { dynamodb } = clientOf([connectError]);
    await expect(dynamodb.write([update])).rejects.toMatchObject({ code: "STORE_UNAVAILABLE" });
  });

  test("each attempt has a deadline of its own", async () => {
    const silent: Fetch = (_, { signal }) =>
      new Promise((__, reject) => {
        signal.addEventListener("abort", () => reject(signal.reason));
      });
    const dynamodb = dynamodbClient({ ...options, fetch: silent, timeout: 50 });
    await expect(dynamodb.write([update])).rejects.toMatchObject({ code: "UNKNOWN_OUTCOME" });
  });

  test("a closed client sends nothing", async () => {
    const { dynamodb, targets } = clientOf([answer(200, {})]);
    await dynamodb.close();
    await expect(dynamodb.get(KEY)).rejects.toMatchObject({ code: "STORE_CLOSED" });
    await expect(dynamodb.write([update])).rejects.toMatchObject({ code: "STORE_CLOSED" });
    expect(targets).toEqual([]);
  });
});

test("a read whose time ends during an attempt tells why the attempts before it failed", async () => {
  let asked = 0;
  const fetch: Fetch = async (_, { signal }) => {
    asked += 1;
    if (asked === 1) return exception("ThrottlingException");
    return await new Promise((_, reject) => {
      signal?.addEventListener("abort", () => reject(signal.reason));
    });
  };
  const dynamodb = dynamodbClient({ ...options, fetch });
  await expect(dynamodb.get(KEY, AbortSignal.timeout(500))).rejects.toThrow(/ThrottlingException/);
  expect(asked).toBe(2);
});

test("keys that DynamoDB has not come to are read as consistently as the others", async () => {
  const keys = [KEY, { pk: "c", sk: "d" }];
  const left = { Keys: [{ pk: { S: "c" }, sk: { S: "d" } }] };
  const answers = [
    answer(200, { Responses: {}, UnprocessedKeys: { shop: left } }),
    answer(200, { Responses: {} }),
  ];
  const bodies: string[] = [];
  const fetch: Fetch = async (_, { body }) => {
    bodies.push(body);
    return answers[bodies.length - 1] as FetchAnswer;
  };
  await dynamodbClient({ ...options, fetch }).read(keys);
  expect(JSON.parse(bodies[1] ?? "")).toEqual({
    RequestItems: { shop: { ...left, ConsistentRead: true } },
  });
});

function tableWith(keys: readonly (readonly [string, string, string])[], more: object = {}) {
  return answer(200, {
    Table: {
      TableStatus: "ACTIVE",
      KeySchema: keys.map(([AttributeName, KeyType]) => ({ AttributeName, KeyType })),
      AttributeDefinitions: keys.map(([AttributeName, , AttributeType]) => ({
        ...{ AttributeName, AttributeType },
      })),
      ...more,
    },
  });
}

describe("a table that exists", () => {
  const create = (table: FetchAnswer) => {
    const { dynamodb } = clientOf([table]);
    return dynamodbTable(dynamodb, "shop").create();
  };

  test("is refused if its key is not that of a store, and kept otherwise", async () => {
    const sort = ["sk", "RANGE", "S"] as const;
    expect(await create(tableWith([sort, ["pk", "HASH", "S"]]))).toBe(false);
    await expect(create(tableWith([["pk", "HASH", "N"], sort]))).rejects.toMatchObject({
      code: "STORE_REFUSED",
      message: expect.stringContaining("its key is pk (N), sk (S), and must be pk (S), sk (S)"),
    });
    await expect(create(tableWith([["PK", "HASH", "S"]]))).rejects.toThrow(
      "its key is PK (S), and",
    );
  });
});

describe("the making of a table", () => {
  const keys = [
    ["pk", "HASH", "S"],
    ["sk", "RANGE", "S"],
  ] as const;
  const inState = (TableStatus: string, more: object = {}) =>
    tableWith(keys, { TableStatus, ...more });

  test("waits for the end of one that is being deleted, and makes another one", async () => {
    const { dynamodb, targets } = clientOf([
      inState("DELETING"),
      exception("ResourceNotFoundException"),
      inState("CREATING"),
      inState("CREATING"),
      inState("ACTIVE"),
      answer(200, {}),
    ]);
    expect(await dynamodbTable(dynamodb, "shop").create()).toBe(true);
    expect(targets.filter((one) => one !== "DescribeTable")).toEqual([
      "CreateTable",
      "UpdateContinuousBackups",
    ]);
  });

  test("turns on the backups that an earlier attempt did not come to, and leaves those of a used table alone", async () => {
    const empty = clientOf([inState("ACTIVE", { ItemCount: 0 }), answer(200, {})]);
    expect(await dynamodbTable(empty.dynamodb, "shop").create()).toBe(false);
    expect(empty.targets).toEqual(["DescribeTable", "UpdateContinuousBackups"]);
    const used = clientOf([inState("ACTIVE", { ItemCount: 7 })]);
    expect(await dynamodbTable(used.dynamodb, "shop").create()).toBe(false);
    expect(used.targets).toEqual(["DescribeTable"]);
  });

  test("is refused where the table cannot be used", async () => {
    const { dynamodb } = clientOf([inState("INACCESSIBLE_ENCRYPTION_CREDENTIALS")]);
    await expect(dynamodbTable(dynamodb, "shop").create()).rejects.toMatchObject({
      code: "STORE_REFUSED",
      message: expect.stringContaining("its status is INACCESSIBLE_ENCRYPTION_CREDENTIALS"),
    });
  });
});

test("calls about one run wait for each other no longer than 10 s when nothing answers", async () => {
  vi.useFakeTimers();
  const fetch: Fetch = (_, { signal }) =>
    new Promise((_, reject) => {
      signal.addEventListener("abort", () => reject(signal.reason));
    });
  const journal = dynamodbJournal(dynamodbClient({ ...options, fetch }));
  let ended = 0;
  const calls = Array.from({ length: 8 }, async () => {
    const cancelling = expect(journal.cancel("run"));
    await cancelling.rejects.toMatchObject({ code: "STORE_UNAVAILABLE" });
    ended += 1;
  });
  await vi.advanceTimersByTimeAsync(21_000);
  expect(ended).toBe(8);
  await Promise.all(calls);
  vi.useRealTimers();
});

describe("credentials", () => {
  test("those of a provider are asked for with each request, and its failure sends nothing", async () => {
    let asked = 0;
    const credentials = async () => {
      asked += 1;
      if (asked > 2) throw new Error("expired");
      return options.credentials;
    };
    const { dynamodb, targets } = clientOf([answer(200, {})], { credentials });
    await dynamodb.get(KEY);
    await dynamodb.get(KEY);
    await expect(dynamodb.write([update])).rejects.toMatchObject({
      code: "STORE_UNAVAILABLE",
      message: expect.stringContaining("no credentials: expired"),
    });
    expect(targets).toHaveLength(2);
  });

  test("those that come late are asked for again: nothing was sent", async () => {
    let asked = 0;
    const credentials = async () => {
      asked += 1;
      return asked === 1 ? await new Promise<never>(() => {}) : options.credentials;
    };
    const { dynamodb, targets } = clientOf([answer(200, {})], { credentials, timeout: 50 });
    expect(await dynamodb.write([update])).toMatchObject({ done: true });
    expect(targets).toEqual(["UpdateItem"]);
  });

  test("those that never come are named when the caller has no more time", async () => {
    const credentials = () => new Promise<never>(() => {});
    const { dynamodb, targets } = clientOf([answer(200, {})], { credentials, timeout: 50 });
    await expect(dynamodb.write([update], AbortSignal.timeout(200))).rejects.toMatchObject({
      code: "STORE_UNAVAILABLE",
      message: expect.stringContaining("came too late"),
    });
    expect(targets).toEqual([]);
  });

  test("a lock whose caller aborts while they are awaited rejects with the caller's reason", async () => {
    let asked = 0;
    const credentials = async () => {
      asked += 1;
      // The first request reads the generation of fences.
      return asked === 1 ? options.credentials : await new Promise<never>(() => {});
    };
    const locks = dynamodbLocks(clientOf([answer(200, {})], { credentials }).dynamodb);
    const caller = new AbortController();
    const locking = locks.lock("cup", { ttl: 5_000, wait: 5_000, signal: caller.signal });
    setTimeout(() => caller.abort("enough"), 10);
    await expect(locking).rejects.toBe("enough");
  });

  test("no error shows the secret", async () => {
    const { dynamodb } = clientOf([exception("AccessDeniedException")]);
    const error = await dynamodb.get(KEY).catch((why: Error) => why);
    expect(JSON.stringify([error, String(error), (error as Error).stack])).not.toContain(
      "a secret",
    );
  });
});

describe("options", () => {
  test.each([
    { region: "" },
    { region: "eu west" },
    { table: "a" },
    { table: "shop/x" },
    { endpoint: "nowhere" },
    { endpoint: "https://user:password@host" },
    { timeout: 0 },
    { timeout: 10_001 },
  ])("%o are refused before any request", (wrong) => {
    expect(() => clientOf([], wrong)).toThrow(/region|table|endpoint|timeout/);
  });

  test.each([
    ["eu-west-1", "https://dynamodb.eu-west-1.amazonaws.com/"],
    ["cn-north-1", "https://dynamodb.cn-north-1.amazonaws.com.cn/"],
  ])("requests for %s go to %s", async (region, url) => {
    const asked: string[] = [];
    const fetch: Fetch = async (to) => {
      asked.push(to);
      return answer(200, {});
    };
    await dynamodbClient({ ...options, region, fetch }).get(KEY);
    expect(asked).toEqual([url]);
  });
});
