import { afterAll, describe, expect, test } from "vitest";
import { type Etcd, get, put } from "../../core/etcd/etcd.ts";
import { keysUnder } from "../../core/inventory/etcd/keys.ts";
import { etcdInventory } from "../../core/inventory/etcd.ts";
import {
  type Answer,
  type Entry,
  type Inventory,
  stockLock,
} from "../../core/inventory/inventory.ts";
import { etcdStore, openEtcd } from "../../core/stores/etcd/index.ts";
import { describeInventory } from "../conformance/inventory.ts";
import { counting } from "../support/counting-etcd.ts";
import { etcdInventoryUnderTest } from "../support/inventory-under-test.ts";
import { ownEtcd } from "../support/own-etcd.ts";
import { TcpProxy } from "../support/tcp-proxy.ts";
import { pause, until } from "../support/until.ts";

const server = await ownEtcd();

afterAll(() => server[Symbol.asyncDispose]());

describeInventory("etcd", () => etcdInventoryUnderTest(server));

/** A client that reaches the server through a proxy. */
async function overProxy(): Promise<{ readonly etcd: Etcd; readonly proxy: TcpProxy }> {
  const proxy = await TcpProxy.to(Number(server.endpoints[0]?.split(":")[1]));
  return { etcd: openEtcd({ endpoints: [`127.0.0.1:${proxy.port}`] }), proxy };
}

describe("a change of stock in etcd", () => {
  test("is one round trip where nobody else has changed the sku", async () => {
    const { etcd, count } = counting(openEtcd(server));
    const locks = etcdStore(openEtcd(server), { prefix: "counted/", closeEtcd: true });
    const stock = etcdInventory(etcd, { prefix: "counted/" });
    const orders = (size: number) =>
      Array.from({ length: size }, (_, i) => ({ operationId: `${size}/${i}`, quantity: 1 }));
    const sku = "a";
    await stock.set({ sku, quantity: 5_000, operationId: "set" });
    await using lock = await locks.lock(stockLock(sku), { ttl: 20_000, wait: 0 });
    const { fence } = lock;
    const costs = async (call: () => Promise<unknown>) => {
      count();
      await call();
      return count();
    };
    expect(await costs(() => stock.decrement({ sku, quantity: 1, operationId: "1" }))).toBe(1);
    expect(await costs(() => stock.restock({ sku, quantity: 1, operationId: "2" }))).toBe(1);
    expect(await costs(() => stock.claim(fence))).toBe(1);
    const fenced = { sku, quantity: 1, fence };
    expect(await costs(() => stock.decrement({ ...fenced, operationId: "3" }))).toBe(1);
    expect(await costs(() => stock.decrementMany({ sku, orders: orders(60) }))).toBe(1);
    expect(await costs(() => stock.decrementMany({ sku, orders: orders(1_000) }))).toBe(2);
    const together = Array.from({ length: 40 }, (_, i) =>
      stock.decrement({ sku, quantity: 1, operationId: `together/${i}` }),
    );
    expect(await costs(() => Promise.all(together))).toBeLessThanOrEqual(2);
    const reserving = { sku, quantity: 1, operationId: "r", expiresIn: 60_000 };
    expect(await costs(() => stock.reserve(reserving))).toBe(3);
    const closing = { sku, reservation: "r", operationId: "c" };
    // And one that gives back the lease, which nobody waits for.
    expect(await costs(() => stock.confirm(closing))).toBe(3);
    await locks.close();
    await etcd.close();
  });

  test("tells nobody a guess: what others did is seen at once", async () => {
    const [one, two] = [openEtcd(server), openEtcd(server)];
    const [here, there] = [one, two].map((etcd) => etcdInventory(etcd, { prefix: "guess/" })) as [
      Inventory,
      Inventory,
    ];
    const change = (operationId: string, quantity: number) => ({ sku: "a", quantity, operationId });
    await here.set(change("1", 5));
    await there.decrement(change("2", 5));
    expect(await here.decrement(change("3", 1))).toMatchObject({ outcome: "sold-out" });
    await there.restock(change("4", 9));
    expect(await here.decrement(change("5", 9))).toMatchObject({ outcome: "applied" });
    expect(await there.decrement(change("5", 9))).toMatchObject({ replayed: true, remaining: 0 });
    await expect(there.restock(change("5", 9))).rejects.toMatchObject({
      code: "OPERATION_CONFLICT",
    });
    await one.close();
    await two.close();
  });

  test("is done once, whichever of its answers is lost", async () => {
    const { etcd: direct, proxy } = await overProxy();
    let losesAt = 0;
    const { etcd, count } = counting(direct, (number) => {
      if (number === losesAt) proxy.loseNextAnswer();
    });
    const stock = etcdInventory(etcd, { prefix: "lost/" });
    let replays = 0;
    const losing = async <T>(call: () => Promise<T>): Promise<T> => {
      // So that it is the answer to a request of the call that is lost, not one to a handshake.
      await direct.range(get("ready"));
      count();
      const answer = await call();
      if ((answer as Partial<Answer> | undefined)?.replayed) replays += 1;
      return answer;
    };
    for (let i = 0; i < 24; i += 1) {
      losesAt = 1 + (i % 4);
      const sku = `many-${i}`;
      const change = (number: number, quantity: number) => {
        return { sku, quantity, operationId: `${sku}/${number}` };
      };
      const closing = (reservation: number, number: number) => {
        return { sku, reservation: `${sku}/${reservation}`, operationId: `${sku}/${number}` };
      };
      await losing(() => stock.set(change(1, 10)));
      await losing(() => stock.restock(change(2, 5)));
      const sold = await losing(() => stock.decrement(change(3, 3)));
      expect(sold).toMatchObject({ outcome: "applied", remaining: 12 });
      const reserving = { ...change(4, 4), expiresIn: 60_000 };
      expect(await losing(() => stock.reserve(reserving))).toMatchObject({ remaining: 8 });
      await losing(() => stock.reserve({ ...change(5, 1), expiresIn: 60_000 }));
      const confirmed = await losing(() => stock.confirm(closing(4, 6)));
      expect(confirmed).toMatchObject({ outcome: "applied", remaining: 7 });
      const cancelled = await losing(() => stock.cancel(closing(5, 7)));
      expect(cancelled).toMatchObject({ outcome: "applied", remaining: 8 });
      const late = await losing(() => stock.decrement(change(8, 9)));
      expect(late).toMatchObject({ outcome: "sold-out", remaining: 8 });
      const orders = [9, 10].map((number) => ({ operationId: `${sku}/${number}`, quantity: 1 }));
      const batch = await losing(() => stock.decrementMany({ sku, orders }));
      expect(batch.map(({ outcome }) => outcome)).toEqual(["applied", "applied"]);
      await losing(() => stock.expire(sku));
      const after = { onHand: 6, reserved: 0, sold: 9, supplied: 15 };
      expect(await losing(() => stock.get(sku))).toEqual({ sku, ...after });
      expect(await losing(() => stock.history(sku))).toHaveLength(10);
    }
    // What was lost was the answer to something that had been done.
    expect(replays).toBeGreaterThan(10);
    await direct.close();
    await proxy.close();
  }, 60_000);

  test("that is given up has an unknown outcome, and the same id finds it out", async () => {
    const { etcd, proxy } = await overProxy();
    const stock = etcdInventory(etcd, { prefix: "given-up/" });
    const sku = "a";
    await stock.set({ sku, quantity: 5, operationId: "1" });
    for (const kind of ["decrement", "restock"] as const) {
      const change = { sku, quantity: 2, operationId: kind };
      const patience = new AbortController();
      proxy.cut();
      const given = stock[kind]({ ...change, signal: patience.signal });
      await pause(50);
      patience.abort(new Error("enough"));
      await expect(given).rejects.toMatchObject({ code: "UNKNOWN_OUTCOME" });
      proxy.mend();
      expect(await stock[kind](change)).toMatchObject({ outcome: "applied" });
    }
    expect(await stock.get(sku)).toMatchObject({ onHand: 5, sold: 2, supplied: 7 });
    const signal = AbortSignal.abort(new Error("before"));
    const never = stock.restock({ sku, quantity: 1, operationId: "never", signal });
    await expect(never).rejects.toThrow("before");
    await etcd.close();
    await proxy.close();
  });

  test("is refused when its lock has expired, though nobody came after it", async () => {
    const etcd = openEtcd(server);
    const locks = etcdStore(etcd, { prefix: "expired/" });
    const stock = etcdInventory(etcd, { prefix: "expired/" });
    const sku = "a";
    await stock.set({ sku, quantity: 5, operationId: "1" });
    const { fence } = await locks.lock(stockLock(sku), { ttl: 1_000, wait: 0, renew: false });
    const change = { sku, quantity: 1, fence };
    await stock.decrement({ ...change, operationId: "2" });
    await until(async () => (await locks.inspect(stockLock(sku))).holder === undefined);
    await expect(stock.decrement({ ...change, operationId: "3" })).rejects.toMatchObject({
      code: "FENCED_OUT",
      current: String(fence),
      message: `the lock of fence ${fence} on "sku/a" is gone`,
    });
    expect(await stock.get(sku)).toMatchObject({ onHand: 4 });
    await locks.close();
    await etcd.close();
  });
});

describe("reservations in etcd", () => {
  test("leave no lease behind when they are closed", async () => {
    const etcd = openEtcd(server);
    const stock = etcdInventory(etcd, { prefix: "leases/" });
    const sku = "a";
    await stock.set({ sku, quantity: 5, operationId: "1" });
    await stock.reserve({ sku, quantity: 2, operationId: "r", expiresIn: 60_000 });
    const { kvs } = await etcd.range(get(keysUnder("leases/").open(sku, "r")));
    const lease = kvs[0]?.lease ?? 0n;
    expect(await etcd.timeToLive(lease)).toBeGreaterThan(50);
    await stock.cancel({ sku, reservation: "r", operationId: "2" });
    await until(async () => (await etcd.timeToLive(lease)) === undefined);
    await etcd.close();
  });

  test("that have expired are found among thousands", async () => {
    const etcd = openEtcd(server);
    const stock = etcdInventory(etcd, { prefix: "many/" });
    const keys = keysUnder("many/");
    const sku = "a";
    await etcd.grant(77n, 600);
    for (let page = 0; page < 42; page += 1) {
      const ids = Array.from({ length: 60 }, (_, i) => `${page}/${i}`);
      const units = ids.map((id) => put(keys.units(sku, id), "1"));
      const open = ids.flatMap((id, i) => (i % 3 ? [put(keys.open(sku, id), "", 77n)] : []));
      await etcd.txn({ when: [], do: [...units, ...open] });
    }
    const units = { onHand: 0, reserved: 2_520, sold: 0, supplied: 2_520, seq: 0 };
    const state = JSON.stringify({ ...units, reservations: 2_520 });
    await etcd.txn({ when: [], do: [put(keys.stock(sku), state)] });
    expect(await stock.decrement({ sku, quantity: 700, operationId: "1" })).toMatchObject({
      outcome: "applied",
    });
    await stock.expire(sku);
    const after = { onHand: 140, reserved: 1_680, sold: 700, supplied: 2_520 };
    expect(await stock.get(sku)).toEqual({ sku, ...after });
    expect(await stock.history(sku, { limit: 10_000 })).toHaveLength(841);
    await etcd.revoke(77n);
    await stock.expire(sku);
    expect(await stock.get(sku)).toMatchObject({ onHand: 1_820, reserved: 0 });
    await etcd.close();
  });
});

async function allEntries(stock: Inventory, sku: string): Promise<readonly Entry[]> {
  const entries: Entry[] = [];
  for (let before = Number.MAX_SAFE_INTEGER; before > 1; before = entries.at(-1)?.seq ?? 0) {
    entries.push(...(await stock.history(sku, { limit: 10_000, before })));
  }
  return entries;
}

describe("a server that is killed and started again", () => {
  test("has lost no acknowledged decrement, and done none twice", async () => {
    await using own = await ownEtcd();
    const sku = "a";
    const clients = Array.from({ length: 4 }, () => openEtcd(own));
    const stocks = clients.map((etcd) => etcdInventory(etcd));
    const [first] = stocks as [Inventory];
    await first.set({ sku, quantity: 1_000_000, operationId: "set" });
    const acknowledged = new Set<string>();
    let over = false;
    const sell = async (stock: Inventory, operationId: string): Promise<void> => {
      await until(async () => {
        const answer = await stock
          .decrement({ sku, quantity: 1, operationId })
          .catch((error) => void expect(error.retryable).toBe(true));
        return answer?.outcome === "applied";
      }, 60_000);
      acknowledged.add(operationId);
    };
    const seller = async (number: number) => {
      const stock = stocks[number % stocks.length] as Inventory;
      for (let i = 0; !over; i += 1) await sell(stock, `${number}/${i}`);
    };
    const sellers = Array.from({ length: 32 }, (_, number) => seller(number));
    for (let kill = 0; kill < 3; kill += 1) {
      const before = acknowledged.size;
      await until(() => acknowledged.size > before + 100, 30_000);
      await own.kill();
      await own.start();
    }
    over = true;
    await Promise.all(sellers);
    const entries = await allEntries(first, sku);
    const sold = entries.flatMap(({ kind, operationId }) =>
      kind === "decrement" ? operationId : [],
    );
    expect(sold.toSorted()).toEqual([...acknowledged].sort());
    const onHand = 1_000_000 - sold.length;
    expect(await first.get(sku)).toMatchObject({ sold: sold.length, onHand });
    for (const etcd of clients) await etcd.close();
  }, 120_000);
});
