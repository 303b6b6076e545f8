import { describe, expect, test } from "vitest";
import type { LockError } from "../../core/lock/errors.ts";
import { type Etcd, get, put, remove } from "../../core/stores/etcd/client/etcd.ts";
import { etcdInventory } from "../../core/stores/etcd/inventory/index.ts";
import { etcdLocks } from "../../core/stores/etcd/locks/index.ts";
import { always, anyLease, anyPrefix, etcdsUnderTest } from "../support/etcd-under-test.ts";
import { OwnEtcd } from "../support/own-etcd.ts";

const ADVICE = "compact and defragment it, then disarm the alarm";

const REFUSED = {
  code: "STORE_REFUSED",
  retryable: false,
  message: expect.stringContaining(ADVICE),
};

/** The error of a request that may have been executed before it was refused. */
const UNKNOWN = { code: "UNKNOWN_OUTCOME", message: expect.stringContaining(ADVICE) };

const VALUE = "x".repeat(50_000);

/** A busy machine may also have no answer in time: nothing was done then, either. */
function expectRefused(error: LockError): void {
  if (error.code !== "STORE_UNAVAILABLE") expect(error).toMatchObject(REFUSED);
}

/** Writes until the server refuses. */
async function fill(etcd: Etcd): Promise<void> {
  for (let at = 0; at < 100; at += 1) await etcd.txn(always(put(`fill/${at}`, VALUE)));
}

describe.concurrent.each(await etcdsUnderTest())("$name, once its quota is used up,", (under) => {
  const start = async () => {
    const own = await OwnEtcd.like(under.server, ["--quota-backend-bytes=1000000"]);
    return { own, etcd: under.open({ endpoints: [own.endpoint] }) };
  };

  test("refuses writes that need space, says what to do, and accepts removals", async () => {
    const { own, etcd } = await start();
    await using _ = own;
    await using __ = etcd;
    const [held, spare] = [anyLease(), anyLease()];
    await etcd.grant(held, 60);
    await etcd.grant(spare, 60);
    await etcd.txn(always(put("held", "", held), put("left", "")));
    await expect(fill(etcd)).rejects.toMatchObject(UNKNOWN);
    await expect(etcd.txn(always(put("a", "")))).rejects.toMatchObject(UNKNOWN);
    await expect(etcd.grant(anyLease(), 60)).rejects.toMatchObject(UNKNOWN);
    expect(await etcd.keepAlive(held)).toBe(60);
    const { answers } = await etcd.txn({
      when: [{ keys: "left", target: "version", is: "=", than: 1n }],
      do: [remove("left")],
    });
    expect(answers[0]?.removed).toBe(1);
    expect(await etcd.revoke(held)).toBe(true);
    expect((await etcd.range(get("held"))).kvs).toEqual([]);
  });

  test("leaves no write that was certainly refused, and no key of a lock that was not acquired", async () => {
    const { own, etcd } = await start();
    await using _ = own;
    await using __ = etcd;
    const prefix = anyPrefix();
    const locks = etcdLocks(etcd, { prefix });
    const stock = etcdInventory(etcd, { prefix });
    await stock.set({ sku: "teapot", quantity: 1_000, operationId: "set" });
    const keeper = await locks.lock("keeps the shared lease alive", {
      ttl: 60_000,
      wait: 60_000,
    });
    const refused: string[] = [];
    const sold: string[] = [];
    const unknown: string[] = [];
    let isFull = false;
    const note = (error: LockError, key: string) => {
      // On a busy machine, a write may also have no answer in time.
      isFull ||= error.message.includes(ADVICE);
      if (error.code === "STORE_REFUSED") refused.push(key);
    };
    const one = async (at: number) => {
      const [key, name, operationId] = [`${prefix}fill/${at}`, `lock/${at}`, `sale-${at}`];
      await Promise.all([
        etcd.txn(always(put(key, VALUE))).catch((error) => note(error, key)),
        locks
          .lock(name, { ttl: 60_000, wait: 60_000 })
          .then((lock) => lock.unlock())
          .catch(expectRefused),
        stock.decrement({ sku: "teapot", quantity: 1, operationId }).then(
          () => sold.push(operationId),
          (error) => {
            // The answer to an earlier attempt may have been lost on a busy machine.
            if (error.code === "UNKNOWN_OUTCOME") unknown.push(operationId);
            else expectRefused(error);
          },
        ),
      ]);
    };
    // etcd checks its size ten times a second: a fast disk takes a whole round in between.
    for (let at = 0; !isFull; at += 60) {
      await Promise.all(Array.from({ length: 60 }, (_, more) => one(at + more)));
    }
    await expect(etcd.txn(always(put("a", "")))).rejects.toMatchObject(UNKNOWN);
    await expect(locks.lock("late", { ttl: 60_000, wait: 60_000 })).rejects.toMatchObject(REFUSED);
    for (const key of refused) expect((await etcd.range(get(key))).kvs, key).toEqual([]);
    expect(await locks.list("lock/")).toEqual([]);
    const entries = await stock.history("teapot", { limit: 10_000 });
    const made = entries.flatMap(({ kind, operationId = "" }) =>
      kind === "decrement" ? [operationId] : [],
    );
    expect([...sold, ...unknown]).toEqual(expect.arrayContaining(made));
    expect(made).toEqual(expect.arrayContaining(sold));
    expect(await stock.get("teapot")).toMatchObject({ onHand: 1_000 - made.length });
    expect(await keeper.unlock()).toBe("released");
    await locks.close();
  });
});
