import { inspect } from "node:util";
import { describe, expect, test } from "vitest";
import { get, put } from "../../core/stores/etcd/client/etcd.ts";
import { always, anyLease, anyPrefix, etcdsUnderTest } from "../support/etcd-under-test.ts";
import { entries, PASSWORD, spoilTokens, startWithUsers } from "../support/etcd-users.ts";
import { TcpProxy } from "../support/tcp-proxy.ts";
import { until } from "../support/until.ts";

describe.concurrent.each(await etcdsUnderTest())("users of $name", (under) => {
  const root = { user: "root", password: PASSWORD };

  test("log in with their password, and access only their own keys", async () => {
    await using own = await startWithUsers(under.server);
    await using etcd = under.open({ endpoints: [own.endpoint], user: "shop", password: PASSWORD });
    const lease = anyLease();
    await etcd.grant(lease, 60);
    await etcd.txn(always(put("shop/a", "1", lease)));
    expect((await etcd.range(get({ prefix: "shop/" }))).count).toBe(1);
    expect(await etcd.keepAlive(lease)).toBe(60);
    expect(await etcd.revoke(lease)).toBe(true);
    const refused = {
      code: "STORE_REFUSED",
      message: expect.stringContaining("permission denied"),
    };
    await expect(etcd.txn(always(put("other/a", "1")))).rejects.toMatchObject(refused);
    await expect(etcd.range(get("other/a"))).rejects.toMatchObject(refused);
  });

  test("are refused at once with a wrong password or without a name, and no error contains a secret", async () => {
    await using own = await startWithUsers(under.server);
    for (const who of [{ user: "root", password: `${PASSWORD}!` }, { user: "nobody" }, {}]) {
      await using etcd = under.open({ endpoints: [own.endpoint], ...who });
      const calls = [() => etcd.range(get("a")), () => etcd.txn(always(put("a", "")))];
      for (const call of calls) {
        const error = await call().catch((reason: unknown) => reason);
        expect(error).toMatchObject({ code: "STORE_REFUSED", retryable: false });
        const shown = inspect(error, { depth: 10, showHidden: true }) + JSON.stringify(error);
        expect(shown).not.toContain(PASSWORD);
        // The password in its encoded form.
        expect(shown).not.toContain(Buffer.from(PASSWORD).toString("base64").slice(0, -2));
      }
    }
  });

  test("log in again when their tokens are stale", async () => {
    await using own = await startWithUsers(under.server);
    await using etcd = under.open({ endpoints: [own.endpoint], ...root });
    const lease = anyLease();
    await etcd.grant(lease, 60);
    for (const value of ["1", "2"]) {
      await spoilTokens(own);
      await etcd.txn(always(put("a", value, lease)));
      await spoilTokens(own);
      expect((await etcd.range(get("a"))).kvs).toMatchObject([{ value, lease }]);
      await spoilTokens(own);
      expect(await etcd.keepAlive(lease)).toBe(60);
    }
  });

  test("have their watches created again when their tokens are stale", async () => {
    await using own = await startWithUsers(under.server);
    await using proxy = await TcpProxy.to(own.port);
    await using etcd = under.open({ endpoints: [`127.0.0.1:${proxy.port}`], ...root });
    let readies = 0;
    const told: string[] = [];
    etcd.watch("a", {
      ready() {
        readies += 1;
      },
      changed: (changes) => told.push(...changes.map(({ value }) => value)),
    });
    await until(() => readies === 1);
    await spoilTokens(own);
    proxy.reset();
    await until(() => readies === 2);
    await etcd.txn(always(put("a", "1")));
    await until(() => told.length === 1);
  });

  test("have a watch that they may not have told to its reader, and it ends no other one", async () => {
    await using own = await startWithUsers(under.server);
    await using etcd = under.open({ endpoints: [own.endpoint], user: "shop", password: PASSWORD });
    let created = 0;
    const revisions: bigint[] = [];
    const told: string[] = [];
    etcd.watch("shop/a", {
      ready() {
        created += 1;
      },
      changed: (changes) => told.push(...changes.map(({ value }) => value)),
    });
    await until(() => created === 1);
    etcd.watch("other/a", { ready: (revision) => revisions.push(revision), changed() {} });
    await until(() => revisions.length === 3);
    expect(revisions).toEqual([0n, 0n, 0n]);
    await etcd.txn(always(put("shop/a", "1")));
    await until(() => told.length === 1);
    expect(created).toBe(1);
  });

  test("log in once for all their calls", async () => {
    await using own = await startWithUsers(under.server);
    // On a busy machine, etcd's check of a password takes seconds.
    await using etcd = under.open({ endpoints: [own.endpoint], timeout: 60_000, ...root });
    for (const _ of ["at first", "when their tokens are no longer good"]) {
      const before = await spoilTokens(own);
      await Promise.all(Array.from({ length: 50 }, () => etcd.range(get("a"))));
      // The request that counts them is one more.
      expect((await entries(own)) - before).toBeLessThanOrEqual(2);
    }
  });

  test("wait for a login no longer than for an answer", async () => {
    await using own = await startWithUsers(under.server);
    await using proxy = await TcpProxy.to(own.port);
    proxy.cut();
    const endpoints = [`127.0.0.1:${proxy.port}`];
    await using etcd = under.open({ endpoints, timeout: 300, ...root });
    const unavailable = { code: "STORE_UNAVAILABLE", retryable: true };
    await expect(etcd.range(get("a"))).rejects.toMatchObject(unavailable);
    // Only the password was sent.
    await expect(etcd.txn(always(put("a", "")))).rejects.toMatchObject(unavailable);
    await using patient = under.open({ endpoints, timeout: 60_000, ...root });
    const reason = new Error("enough");
    const aborted = patient.txn(always(put(anyPrefix(), "")), AbortSignal.abort(reason));
    await expect(aborted).rejects.toBe(reason);
    const signal = AbortSignal.timeout(50);
    const late = patient.txn(always(put(anyPrefix(), "")), signal);
    await expect(late).rejects.toMatchObject({ name: "TimeoutError" });
  });
});
