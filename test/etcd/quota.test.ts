import { describe, expect, test } from "vitest";
import { get, put, remove } from "../../core/etcd/etcd.ts";
import { always, anyLease, etcdsUnderTest } from "../support/etcd-under-test.ts";
import { OwnEtcd } from "../support/own-etcd.ts";

describe.concurrent.each(etcdsUnderTest())("$name, once its quota is used up,", (under) => {
  test("refuses what needs space and says what to do, and lets go of what is there", async () => {
    await using own = await OwnEtcd.like(under.server, ["--quota-backend-bytes=1000000"]);
    await using etcd = under.open({ endpoints: [own.endpoint] });
    const [held, spare] = [anyLease(), anyLease()];
    await etcd.grant(held, 60);
    await etcd.grant(spare, 60);
    await etcd.txn(always(put("held", "", held), put("left", "")));
    const value = "x".repeat(100_000);
    const fill = async () => {
      for (let at = 0; at < 50; at += 1) await etcd.txn(always(put(`fill/${at}`, value)));
    };
    const refused = {
      code: "STORE_REFUSED",
      retryable: false,
      message: expect.stringContaining("compact and defragment it, then disarm the alarm"),
    };
    await expect(fill()).rejects.toMatchObject(refused);
    await expect(etcd.txn(always(put("a", "")))).rejects.toMatchObject(refused);
    await expect(etcd.grant(anyLease(), 60)).rejects.toMatchObject(refused);
    expect(await etcd.keepAlive(held)).toBe(60);
    const { answers } = await etcd.txn({
      when: [{ keys: "left", target: "version", is: "=", than: 1n }],
      do: [remove("left")],
    });
    expect(answers[0]?.removed).toBe(1);
    expect(await etcd.revoke(held)).toBe(true);
    expect((await etcd.range(get("held"))).kvs).toEqual([]);
  });
});
