import { afterAll, describe, expect, test } from "vitest";
import {
  type Compare,
  type Etcd,
  get,
  isAbsent,
  isCreated,
  type Keys,
  LeaseExistsError,
  NoLeaseError,
  put,
  remove,
} from "../../core/stores/etcd/client/etcd.ts";
import { allEtcdsUnderTest, always, anyLease, anyPrefix } from "../support/etcd-under-test.ts";
import { until } from "../support/until.ts";

describe.each(await allEtcdsUnderTest())("$name", ({ open, server }) => {
  const etcd = open();
  afterAll(() => etcd.close());

  const set = (...pairs: readonly (readonly [key: string, value: string])[]) =>
    etcd.txn(always(...pairs.map(([key, value]) => put(key, value))));

  const keysOf = async (keys: Keys, options?: Parameters<typeof get>[1]) =>
    (await etcd.range(get(keys, options))).kvs.map(({ key }) => key);

  test("accepts endpoints as URLs", async () => {
    const endpoints = server.endpoints.map((endpoint) => `http://${endpoint}`);
    await using client = open({ endpoints });
    expect((await client.range(get(anyPrefix()))).kvs).toEqual([]);
  });

  describe("a transaction", () => {
    test("executes its operations when all comparisons hold, and the alternative otherwise", async () => {
      const key = `${anyPrefix()}a`;
      const txn = {
        when: [isAbsent(key)],
        do: [put(key, "1"), get(key)],
        otherwise: [get(key), remove(key), get(key)],
      };
      const first = await etcd.txn(txn);
      expect(first.succeeded).toBe(true);
      const kv = {
        key,
        value: "1",
        createRevision: first.revision,
        modRevision: first.revision,
        version: 1n,
        lease: 0n,
      };
      expect(first.answers[1]).toEqual({ kvs: [kv], count: 1, removed: 0, txn: undefined });
      const second = await etcd.txn(txn);
      expect(second.succeeded).toBe(false);
      expect(second.revision > first.revision).toBe(true);
      expect(second.answers).toMatchObject([
        { kvs: [kv], count: 1, removed: 0 },
        { kvs: [], count: 0, removed: 1 },
        { kvs: [], count: 0, removed: 0 },
      ]);
    });

    test("compares revisions, version, value and lease", async () => {
      const key = `${anyPrefix()}a`;
      const lease = anyLease();
      await etcd.grant(lease, 60);
      const { revision } = await set([key, "m"]);
      const { revision: changed } = await etcd.txn(always(put(key, "m", lease)));
      const numbers = { create: revision, mod: changed, version: 2n, lease };
      const compares = Object.entries(numbers).flatMap(([target, than]) =>
        [-1n, 0n, 1n].map((by) => ({ target, than: than + by, by })),
      );
      for (const { target, than, by } of compares) {
        const compare = { keys: key, target, than } as Extract<Compare, { than: bigint }>;
        const held = await holding(etcd, compare);
        expect(held, `${target} ${by}`).toEqual(
          by === 0n ? ["="] : by < 0n ? ["!=", ">"] : ["!=", "<"],
        );
      }
      expect(await holding(etcd, { keys: key, target: "value", than: "m" })).toEqual(["="]);
      expect(await holding(etcd, { keys: key, target: "value", than: "é" })).toEqual(["!=", "<"]);
      await etcd.revoke(lease);
    });

    test("compares every key with a prefix", async () => {
      const prefix = anyPrefix();
      const holds = async (compare: Compare) =>
        (await etcd.txn({ when: [compare], do: [] })).succeeded;
      expect(await holds(isAbsent({ prefix }))).toBe(true);
      await set([`${prefix}a`, "1"], [`${prefix}b`, "2"]);
      expect(await holds(isAbsent({ prefix }))).toBe(false);
      const keys = { prefix };
      expect(await holds({ keys, target: "version", is: "=", than: 1n })).toBe(true);
      await set([`${prefix}b`, "3"]);
      expect(await holds({ keys, target: "version", is: "=", than: 1n })).toBe(false);
      expect(await holds({ keys, target: "version", is: ">", than: 0n })).toBe(true);
    });

    test("may contain other transactions", async () => {
      const [a, b] = [`${anyPrefix()}a`, `${anyPrefix()}b`];
      const inner = { when: [isAbsent(b)], do: [put(b, "1")], otherwise: [get(b)] };
      const txn = always(put(a, "1"), { op: "txn", txn: inner } as const);
      const first = await etcd.txn(txn);
      expect(first.answers[1]?.txn).toMatchObject({ succeeded: true });
      const second = await etcd.txn(txn);
      expect(second.answers[1]?.txn).toMatchObject({
        succeeded: false,
        answers: [{ kvs: [{ key: b, value: "1", createRevision: first.revision }] }],
      });
    });

    test("of more operations than the server allows is refused, and changes nothing", async () => {
      const prefix = anyPrefix();
      const puts = (count: number) =>
        Array.from({ length: count }, (_, at) => put(prefix + at, ""));
      await expect(etcd.txn(always(...puts(129)))).rejects.toMatchObject({
        code: "STORE_REFUSED",
        retryable: false,
        message: expect.stringContaining("too many operations"),
      });
      expect(await keysOf({ prefix })).toEqual([]);
      await etcd.txn(always(...puts(128)));
      expect(await keysOf({ prefix })).toHaveLength(128);
    });

    test("may have an answer of many megabytes", async () => {
      const prefix = anyPrefix();
      const value = "x".repeat(1_000_000);
      for (let at = 0; at < 6; at += 1) await set([`${prefix}${at}`, value]);
      const txn = always(put(`${prefix}a`, ""), get({ prefix }));
      const { answers } = await etcd.txn(txn);
      expect(answers[1]?.kvs.map((kv) => kv.value.length)).toEqual([
        ...Array(6).fill(1_000_000),
        0,
      ]);
      await etcd.txn(always(remove({ prefix })));
    });

    test("that is too large is refused, and changes nothing", async () => {
      const prefix = anyPrefix();
      const write = (size: number) => etcd.txn(always(put(`${prefix}a`, "x".repeat(size))));
      const refused = { code: "STORE_REFUSED", retryable: false };
      await expect(write(2_000_000)).rejects.toMatchObject(refused);
      // Above gRPC's limit, the text is the same for a request and for the answer to a gateway's request.
      const unknown = { code: "UNKNOWN_OUTCOME", cause: refused };
      await expect(write(3_000_000)).rejects.toMatchObject(unknown);
      expect(await keysOf({ prefix })).toEqual([]);
    });

    test("that attaches a key to a missing lease changes nothing", async () => {
      const prefix = anyPrefix();
      const late = put(`${prefix}b`, "", anyLease());
      const nested = { op: "txn", txn: always(late) } as const;
      for (const op of [late, nested]) {
        const txn = etcd.txn(always(put(`${prefix}a`, ""), op));
        await expect(txn).rejects.toBeInstanceOf(NoLeaseError);
      }
      expect(await keysOf({ prefix })).toEqual([]);
    });

    test("deletes one key, or all keys with a prefix", async () => {
      const prefix = anyPrefix();
      await set([`${prefix}a`, ""], [`${prefix}b`, ""], [`${prefix}c`, ""]);
      const { answers } = await etcd.txn({
        when: [],
        do: [remove(`${prefix}b`), get({ prefix }), remove({ prefix }), remove({ prefix })],
      });
      expect(answers.map(({ removed, count }) => [removed, count])).toEqual([
        [1, 0],
        [0, 2],
        [2, 0],
        [0, 0],
      ]);
    });
  });

  describe("a range", () => {
    test("is in order of keys, or of creation", async () => {
      const prefix = anyPrefix();
      for (const name of ["b", "c", "a"]) await set([prefix + name, name]);
      const ordered = async (options?: Parameters<typeof get>[1]) =>
        (await etcd.range(get({ prefix }, options))).kvs.map(({ value }) => value).join("");
      expect(await ordered()).toBe("abc");
      expect(await ordered({ order: "descending" })).toBe("cba");
      expect(await ordered({ by: "create" })).toBe("bca");
      expect(await ordered({ by: "create", order: "descending" })).toBe("acb");
      expect(await ordered({ by: "create", order: "descending", limit: 1 })).toBe("a");
    });

    test("has a limit that the count ignores", async () => {
      const prefix = anyPrefix();
      await set([`${prefix}a`, "1"], [`${prefix}b`, "2"], [`${prefix}c`, "3"]);
      const { kvs, count, revision } = await etcd.range(get({ prefix }, { limit: 2 }));
      expect(kvs.map(({ value }) => value)).toEqual(["1", "2"]);
      expect(count).toBe(3);
      expect(revision).toBeGreaterThanOrEqual(kvs[0]?.modRevision ?? 0n);
    });

    test("finds the predecessors of a key in a queue", async () => {
      const prefix = anyPrefix();
      const { revision: first } = await set([`${prefix}z`, ""]);
      const { revision: second } = await set([`${prefix}y`, ""]);
      await set([`${prefix}x`, ""]);
      const last = { by: "create", order: "descending", limit: 1 } as const;
      expect(await keysOf({ prefix }, { ...last, createdBy: second })).toEqual([`${prefix}y`]);
      expect(await keysOf({ prefix }, { ...last, createdBy: second - 1n })).toEqual([`${prefix}z`]);
      expect(await keysOf({ prefix }, { ...last, createdBy: first - 1n })).toEqual([]);
    });

    test("may omit the values", async () => {
      const key = `${anyPrefix()}a`;
      await set([key, "large"]);
      const { kvs } = await etcd.range(get(key, { keysOnly: true }));
      expect(kvs).toMatchObject([{ key, value: "", version: 1n }]);
    });

    test("is read in pages", async () => {
      const prefix = anyPrefix();
      const keys = Array.from({ length: 2_500 }, (_, at) => prefix + String(at).padStart(4, "0"));
      for (let at = 0; at < keys.length; at += 125) {
        await set(...keys.slice(at, at + 125).map((key) => [key, ""] as const));
      }
      const pages: string[][] = [];
      for (let after: string | undefined; ; after = pages.at(-1)?.at(-1)) {
        const page = await keysOf({ prefix }, { limit: 1_000, ...(after && { after }) });
        pages.push(page);
        if (page.length < 1_000) break;
      }
      expect(pages.map(({ length }) => length)).toEqual([1_000, 1_000, 500]);
      expect(pages.flat()).toEqual(keys);
      expect(await keysOf({ prefix })).toEqual(keys);
    });

    test.each([
      ["\u{7f}", "\u{80}"],
      ["é", "ê"],
      ["\u{7ff}", "\u{800}"],
      ["日", "旦"],
      ["\u{ffff}", "\u{10000}"],
    ])("of a prefix that ends in %j ends before %j", async (last, next) => {
      const before = anyPrefix();
      const prefix = before + last;
      const keys = [prefix, `${prefix}a`, `${prefix}\u{10ffff}`];
      await set(...[...keys, before + next].map((key) => [key, ""] as const));
      expect(await keysOf({ prefix })).toEqual(keys);
    });

    test("of all keys is the empty prefix", async () => {
      const key = `${anyPrefix()}a`;
      await set([key, ""]);
      expect(await keysOf({ prefix: "" }, { keysOnly: true })).toContain(key);
    });

    test("returns keys and values as they were put", async () => {
      const texts = [
        "",
        "\0",
        "a\0b",
        "\u{feff}bom",
        "日本/ключ",
        "😀",
        "a\u{301}",
        "x".repeat(1_000_000),
      ];
      for (const value of texts) {
        const key = anyPrefix() + value.slice(0, 100);
        await set([key, value]);
        expect((await etcd.range(get(key))).kvs).toMatchObject([{ key, value }]);
      }
    });
  });

  describe("a lease", () => {
    test("has the requested id, once", async () => {
      const lease = anyLease();
      expect(await etcd.grant(lease, 60)).toBe(60);
      await expect(etcd.grant(lease, 60)).rejects.toBeInstanceOf(LeaseExistsError);
      expect(await etcd.timeToLive(lease)).toBeGreaterThan(50);
      expect(await etcd.revoke(lease)).toBe(true);
      expect(await etcd.revoke(lease)).toBe(false);
      expect(await etcd.timeToLive(lease)).toBeUndefined();
    });

    test("may have the highest possible id", async () => {
      const lease = 2n ** 63n - 1n;
      await etcd.revoke(lease);
      await etcd.grant(lease, 60);
      const key = `${anyPrefix()}a`;
      await etcd.txn(always(put(key, "", lease)));
      expect((await etcd.range(get(key))).kvs).toMatchObject([{ lease }]);
      expect(await etcd.keepAlive(lease)).toBe(60);
      await etcd.revoke(lease);
      expect((await etcd.range(get(key))).kvs).toEqual([]);
    });

    test("with a ttl that etcd refuses is refused", async () => {
      const lease = anyLease();
      await expect(etcd.grant(lease, 9_000_000_001)).rejects.toMatchObject({
        code: "STORE_REFUSED",
        retryable: false,
      });
      expect(await etcd.timeToLive(lease)).toBeUndefined();
    });

    test("ends after its ttl, with its keys, unless it is kept alive", async () => {
      const [kept, left] = [anyLease(), anyLease()];
      const prefix = anyPrefix();
      for (const lease of [kept, left]) {
        await etcd.grant(lease, 1);
        await etcd.txn(always(put(`${prefix}${lease}`, "", lease)));
      }
      const beat = setInterval(() => void etcd.keepAlive(kept), 300);
      await until(async () => (await etcd.timeToLive(left)) === undefined);
      clearInterval(beat);
      expect(await keysOf({ prefix })).toEqual([`${prefix}${kept}`]);
      expect(await etcd.keepAlive(left)).toBeUndefined();
      expect(await etcd.keepAlive(kept)).toBe(1);
      await etcd.revoke(kept);
    });

    test("is kept alive together with 49 others, living and dead", async () => {
      const leases = Array.from({ length: 50 }, anyLease);
      const isLiving = (at: number) => at % 5 !== 0;
      await Promise.all(leases.map((lease, at) => isLiving(at) && etcd.grant(lease, 30 + at)));
      const answers = await Promise.all(leases.map((lease) => etcd.keepAlive(lease)));
      expect(answers).toEqual(leases.map((_, at) => (isLiving(at) ? 30 + at : undefined)));
      const [, one = 0n] = leases;
      const same = await Promise.all(Array.from({ length: 50 }, () => etcd.keepAlive(one)));
      expect(new Set(same)).toEqual(new Set([31]));
      await Promise.all(leases.map((lease) => etcd.revoke(lease)));
    });
  });

  test("a condition on a create revision fails for a later key of the same name", async () => {
    const key = `${anyPrefix()}a`;
    const { revision } = await set([key, ""]);
    await etcd.txn(always(remove(key)));
    await set([key, ""]);
    expect((await etcd.txn({ when: [isCreated(key, revision)], do: [] })).succeeded).toBe(false);
  });
});

/** Returns the comparisons that hold. */
async function holding(etcd: Etcd, compare: Omit<Compare, "is">): Promise<string[]> {
  const held: string[] = [];
  for (const is of ["=", "!=", "<", ">"] as const) {
    const { succeeded } = await etcd.txn({ when: [{ ...compare, is } as Compare], do: [] });
    if (succeeded) held.push(is);
  }
  return held;
}
