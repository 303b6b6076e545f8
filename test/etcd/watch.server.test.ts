import { afterAll, describe, expect, test } from "vitest";
import {
  type Etcd,
  type KeyChange,
  type Keys,
  put,
  remove,
} from "../../core/stores/etcd/client/etcd.ts";
import { always, anyLease, anyPrefix, etcdsUnderTest, wireTo } from "../support/etcd-under-test.ts";
import { pause, until } from "../support/until.ts";

/** Makes a watch, and collects its notifications. */
class Log {
  readonly changes: KeyChange[] = [];
  readonly stop: () => void;
  #ready = 0;

  constructor(etcd: Etcd, keys: Keys) {
    this.stop = etcd.watch(keys, {
      ready: () => {
        this.#ready += 1;
      },
      changed: (changes) => this.changes.push(...changes),
    });
  }

  get readies(): number {
    return this.#ready;
  }

  ready(times = 1): Promise<boolean> {
    return until(() => this.#ready >= times);
  }

  async told(count: number): Promise<readonly KeyChange[]> {
    await until(() => this.changes.length >= count);
    return this.changes;
  }
}

describe.each(await etcdsUnderTest())("a watch of $name", ({ open, server }) => {
  const etcd = open();
  afterAll(() => etcd.close());

  test("reports the changes of one key in their order, from its creation on", async () => {
    const key = `${anyPrefix()}é`;
    const lease = anyLease();
    await etcd.grant(lease, 60);
    const { revision: before } = await etcd.txn(always(put(key, "before")));
    const log = new Log(etcd, key);
    await log.ready();
    const { revision: first } = await etcd.txn(always(put(key, "1", lease)));
    const { revision: second } = await etcd.txn(always(put(`${key}/other`, ""), remove(key)));
    const { revision: third } = await etcd.txn(always(put(key, "\u{feff}")));
    expect(await log.told(3)).toEqual([
      {
        type: "put",
        key,
        value: "1",
        createRevision: before,
        modRevision: first,
        lease,
      },
      { type: "remove", key, value: "", createRevision: 0n, modRevision: second, lease: 0n },
      {
        type: "put",
        key,
        value: "\u{feff}",
        createRevision: third,
        modRevision: third,
        lease: 0n,
      },
    ]);
    expect(log.readies).toBe(1);
    await etcd.revoke(lease);
    log.stop();
  });

  test("reports all keys with a prefix, also those of one transaction", async () => {
    const prefix = `${anyPrefix()}日`;
    const log = new Log(etcd, { prefix });
    await log.ready();
    await etcd.txn(always(put(`${prefix}a`, "1"), put(`${prefix}b`, "2"), put(`x${prefix}`, "3")));
    const { revision } = await etcd.txn(always(remove({ prefix })));
    const changes = await log.told(4);
    expect(changes.map(({ type, key }) => [type, key.slice(prefix.length)])).toEqual([
      ["put", "a"],
      ["put", "b"],
      ["remove", "a"],
      ["remove", "b"],
    ]);
    expect(changes.at(-1)?.modRevision).toBe(revision);
    log.stop();
  });

  test("reports keys that the end of a lease deletes", async () => {
    const key = `${anyPrefix()}a`;
    const lease = anyLease();
    await etcd.grant(lease, 60);
    await etcd.txn(always(put(key, "", lease)));
    const log = new Log(etcd, key);
    await log.ready();
    await etcd.revoke(lease);
    expect(await log.told(1)).toMatchObject([{ type: "remove", key }]);
    log.stop();
  });

  test("reports changes that arrive in many chunks", async () => {
    const prefix = anyPrefix();
    const log = new Log(etcd, { prefix });
    await log.ready();
    const values = Array.from({ length: 8 }, (_, at) => `${"日本é😀".repeat(10_000)}${at}`);
    for (const [at, value] of values.entries())
      await etcd.txn(always(put(`${prefix}${at}`, value)));
    expect((await log.told(8)).map(({ value }) => value)).toEqual(values);
    log.stop();
  });

  test("that was stopped reports nothing more", async () => {
    const prefix = anyPrefix();
    const [stopped, never, left] = [
      new Log(etcd, { prefix }),
      new Log(etcd, { prefix }),
      new Log(etcd, { prefix }),
    ];
    never.stop();
    await Promise.all([stopped.ready(), left.ready()]);
    stopped.stop();
    stopped.stop();
    await etcd.txn(always(put(`${prefix}a`, "")));
    await left.told(1);
    await pause(100);
    expect(stopped.changes).toEqual([]);
    expect([never.readies, never.changes]).toEqual([0, []]);
    left.stop();
  });

  test("is one of 200 on one client, and each reports its own key", async () => {
    const prefix = anyPrefix();
    const keys = Array.from({ length: 200 }, (_, at) => `${prefix}${at}`);
    const logs = keys.map((key) => new Log(etcd, key));
    await Promise.all(logs.map((log) => log.ready()));
    await etcd.txn(always(...keys.slice(0, 100).map((key) => put(key, key))));
    await etcd.txn(always(...keys.slice(100).map((key) => put(key, key))));
    const told = await Promise.all(logs.map((log) => log.told(1)));
    expect(told.map((changes) => changes.map(({ value }) => value))).toEqual(
      keys.map((key) => [key]),
    );
    for (const log of logs) log.stop();
  });

  test("is created again after its connection was cut, and calls ready", async () => {
    await using proxy = await wireTo(server);
    await using client = open({ endpoints: [`127.0.0.1:${proxy.port}`] });
    const prefix = anyPrefix();
    const log = new Log(client, { prefix });
    await log.ready();
    for (const times of [2, 3, 4]) {
      proxy.reset();
      await log.ready(times);
      await etcd.txn(always(put(`${prefix}${times}`, "")));
      expect(await log.told(times - 1)).toHaveLength(times - 1);
      expect(log.changes.at(-1)?.key).toBe(`${prefix}${times}`);
    }
    expect(log.readies).toBe(4);
  });

  test("that was stopped is not created again", async () => {
    await using proxy = await wireTo(server);
    await using client = open({ endpoints: [`127.0.0.1:${proxy.port}`] });
    const [stopped, left] = [new Log(client, anyPrefix()), new Log(client, anyPrefix())];
    await Promise.all([stopped.ready(), left.ready()]);
    stopped.stop();
    proxy.reset();
    await left.ready(2);
    await pause(200);
    expect(stopped.readies).toBe(1);
  });

  test("is created as soon as the server runs", async () => {
    await using proxy = await wireTo(server);
    const { port } = proxy;
    await proxy.close();
    await using client = open({ endpoints: [`127.0.0.1:${port}`] });
    const log = new Log(client, anyPrefix());
    await pause(300);
    expect(log.readies).toBe(0);
    await using _late = await wireTo(server, port);
    await log.ready();
  });
});

describe.concurrent.each(await etcdsUnderTest())(
  "a watch over time of $name",
  ({ open, server, transport }) => {
    const etcd = open();
    afterAll(() => etcd.close());

    test("detects that its connection was cut silently", async () => {
      await using proxy = await wireTo(server);
      await using client = open({
        endpoints: [`127.0.0.1:${proxy.port}`, ...server.endpoints],
      });
      const prefix = anyPrefix();
      const log = new Log(client, { prefix });
      await log.ready();
      proxy.cut();
      await log.ready(2);
      await etcd.txn(always(put(`${prefix}a`, "")));
      await log.told(1);
    });

    test("survives 14 s without changes", async () => {
      const prefix = anyPrefix();
      await using client = open();
      const log = new Log(client, { prefix });
      await log.ready();
      await pause(14_000);
      // The gateway's watch is created again after silence: it has no pings.
      expect(log.readies).toBe(transport === "gateway" ? 2 : 1);
      await etcd.txn(always(put(`${prefix}a`, "")));
      await log.told(1);
    });
  },
);
