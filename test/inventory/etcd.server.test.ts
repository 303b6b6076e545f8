import { describe, expect, inject, test } from "vitest";
import { type Inventory, stockLock } from "../../core/inventory/inventory.ts";
import { type Etcd, get, type LeaseId, put, type Txn } from "../../core/stores/etcd/client/etcd.ts";
import { etcdClient } from "../../core/stores/etcd/client/grpc.ts";
import { stockKeys } from "../../core/stores/etcd/inventory/context.ts";
import { etcdInventory } from "../../core/stores/etcd/inventory/index.ts";
import { etcdLocks } from "../../core/stores/etcd/locks/index.ts";
import { memoryLocks } from "../../core/stores/memory/locks.ts";
import { describeInventory } from "../conformance/inventory.ts";
import { counting } from "../support/counting-etcd.ts";
import { type Fault, faulty } from "../support/faulty-etcd.ts";
import { etcdInventoryUnderTest } from "../support/inventory-under-test.ts";
import { known } from "../support/known.ts";
import { sellWithoutPause } from "../support/sell-without-pause.ts";
import { pause, until } from "../support/until.ts";

const servers = inject("etcdServers");

for (const server of servers) describeInventory(server.name, () => etcdInventoryUnderTest(server));

const [server] = servers;
if (!server) throw new Error("there is no etcd server");

const areGone = async (etcd: Etcd, leases: readonly LeaseId[]) => {
  const left = await Promise.all(leases.map((lease) => etcd.timeToLive(lease)));
  return left.every((each) => each === undefined);
};

/** Opens stock whose requests take `span` longer. */
const slow = (prefix: string, span: number) => {
  const { etcd } = counting(etcdClient({ endpoints: server.endpoints }), () => pause(span));
  return { stock: etcdInventory(etcd, { prefix }), etcd };
};

describe("a change of stock in etcd", () => {
  test("a change costs one round trip if no other client has changed the sku", async () => {
    const { etcd, count } = counting(etcdClient({ endpoints: server.endpoints }));
    const locks = etcdLocks(etcdClient({ endpoints: server.endpoints }), {
      prefix: "counted/",
      closeEtcd: true,
    });
    const stock = etcdInventory(etcd, { prefix: "counted/" });
    const orders = (size: number) =>
      Array.from({ length: size }, (_, i) => ({ operationId: `${size}/${i}`, quantity: 1 }));
    const sku = "a";
    await stock.set({ sku, quantity: 5_000, operationId: "set" });
    await using lock = await locks.lock(stockLock(sku), { ttl: 60_000, wait: 60_000 });
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
    expect(await costs(() => stock.reserve(reserving))).toBe(2);
    const closing = { sku, reservation: "r", operationId: "c" };
    // The third request revokes the lease; the caller does not wait for it.
    expect(await costs(() => stock.confirm(closing))).toBe(3);
    await locks.close();
    await etcd.close();
  });

  test.each([5, 40])(
    "a client whose requests take %i ms has its turns beside one that sells without a pause",
    async (span) => {
      const prefix = `turns-${span}/`;
      const [busy, other] = [slow(prefix, 5), slow(prefix, span)];
      await using _busy = busy.etcd;
      await using _other = other.etcd;
      const sku = "a";
      const change = (operationId: string) => ({ sku, quantity: 1, operationId });
      await busy.stock.set({ ...change("set"), quantity: 100_000 });
      await other.stock.reserve({ ...change("expired"), expiresIn: 1 });
      const reservations = get({ prefix: stockKeys(prefix).reservations(sku) });
      await until(async () => (await busy.etcd.range(reservations)).kvs.length === 1);
      {
        await using _ = sellWithoutPause(busy.stock, sku);
        const { stock } = other;
        const reserving = { ...change("reserve"), expiresIn: 600_000 };
        const closing = { ...change("confirm"), reservation: "reserve" };
        const tooMany = { ...change("too many"), quantity: 200_000 };
        expect(await stock.decrement(change("decrement"))).toMatchObject({ outcome: "applied" });
        expect(await stock.reserve(reserving)).toMatchObject({ outcome: "applied" });
        await stock.expire(sku);
        expect(await stock.decrement(tooMany)).toMatchObject({ outcome: "sold-out" });
        expect(await stock.confirm(closing)).toMatchObject({ outcome: "applied" });
      }
      expect(await other.stock.get(sku)).toMatchObject({ reserved: 0 });
      expect(await other.stock.list()).toHaveLength(1);
      const seqs = (await other.stock.history(sku, { limit: 10_000 })).map(({ seq }) => seq);
      expect(seqs).toEqual(seqs.map((_, i) => seqs.length - i));
    },
  );

  test("expired reservations that are put back late change nothing", async () => {
    const etcd = etcdClient({ endpoints: server.endpoints });
    const flaky = faulty(etcd);
    const prefix = "late-expiry/";
    const [ours, theirs] = [etcdInventory(flaky.etcd, { prefix }), etcdInventory(etcd, { prefix })];
    const sku = "a";
    await ours.set({ sku, quantity: 5, operationId: "set" });
    await ours.reserve({ sku, quantity: 2, operationId: "r", expiresIn: 1_000 });
    const reservations = get({ prefix: stockKeys(prefix).reservations(sku) });
    await until(async () => (await etcd.range(reservations)).kvs.length === 1);
    let isLate = false;
    flaky.decide = (call, _, [txn]) => {
      const writes = call === "txn" && (txn as Txn).do.some(({ op }) => op !== "get");
      if (!writes || isLate) return undefined;
      isLate = true;
      return "late";
    };
    await ours.expire(sku);
    await theirs.decrement({ sku, quantity: 4, operationId: "1" });
    await flaky.deliver();
    expect(await theirs.get(sku)).toMatchObject({ onHand: 1, reserved: 0, sold: 4 });
    await etcd.close();
  });

  test("a result never comes from the cache: changes of other clients are visible at once", async () => {
    const [one, two] = [
      etcdClient({ endpoints: server.endpoints }),
      etcdClient({ endpoints: server.endpoints }),
    ];
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

  test("a late holder is refused after another client has claimed the sku for the next holder", async () => {
    const [one, two] = [
      etcdClient({ endpoints: server.endpoints }),
      etcdClient({ endpoints: server.endpoints }),
    ];
    const [here, there] = [one, two].map((etcd) => etcdInventory(etcd, { prefix: "claims/" })) as [
      Inventory,
      Inventory,
    ];
    // Not locks in etcd: here the claim refuses the late holder.
    await using locks = memoryLocks();
    const sku = "a";
    const first = await locks.lock(stockLock(sku), { ttl: 60_000, wait: 60_000 });
    const change = { sku, quantity: 1, fence: first.fence };
    await here.set({ sku, quantity: 5, operationId: "1" });
    await here.decrement({ ...change, operationId: "2" });
    await first.unlock();
    const { fence } = await locks.lock(stockLock(sku), { ttl: 60_000, wait: 60_000 });
    await there.claim(fence);
    const refused = { code: "FENCED_OUT", current: String(fence) };
    await expect(here.decrement({ ...change, operationId: "3" })).rejects.toMatchObject(refused);
    await expect(here.claim(first.fence)).rejects.toMatchObject(refused);
    await one.close();
    await two.close();
  });

  test("a batch does not apply an order whose id was used in the meantime", async () => {
    const direct = etcdClient({ endpoints: server.endpoints });
    const other = etcdInventory(direct, { prefix: "meantime/" });
    const orders = Array.from({ length: 130 }, (_, i) => ({ operationId: `${i}`, quantity: 1 }));
    const late = { sku: "b", quantity: 1, operationId: "129" };
    const { etcd } = counting(direct, (number) => number === 2 && other.decrement(late));
    const stock = etcdInventory(etcd, { prefix: "meantime/" });
    for (const sku of ["a", "b"])
      await other.set({ sku, quantity: 500, operationId: `${sku}/set` });
    const outcomes = (await stock.decrementMany({ sku: "a", orders })).map(
      ({ outcome }) => outcome,
    );
    expect(outcomes).toEqual([...Array(129).fill("applied"), "conflict"]);
    expect(await stock.get("a")).toMatchObject({ onHand: 371, sold: 129 });
    expect(await stock.get("b")).toMatchObject({ onHand: 499, sold: 1 });
    expect(await stock.history("a")).toHaveLength(100);
    await direct.close();
  });

  test("a holder is refused once its lock has expired, even before the next holder comes", async () => {
    const etcd = etcdClient({ endpoints: server.endpoints });
    const locks = etcdLocks(etcd, { prefix: "expired/" });
    const stock = etcdInventory(etcd, { prefix: "expired/" });
    const sku = "a";
    await stock.set({ sku, quantity: 5, operationId: "1" });
    const { fence } = await locks.lock(stockLock(sku), { ttl: 5_000, wait: 60_000, renew: false });
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
  test("a reservation that expires during its confirm is not sold", async () => {
    const direct = etcdClient({ endpoints: server.endpoints });
    const open = stockKeys("late/").open("a", "r");
    const expire = async () => {
      const { kvs } = await direct.range(get(open));
      await direct.revoke(kvs[0]?.lease ?? 0n);
    };
    const other = etcdInventory(direct, { prefix: "late/" });
    await other.set({ sku: "a", quantity: 5, operationId: "1" });
    await other.reserve({ sku: "a", quantity: 2, operationId: "r", expiresIn: 60_000 });
    const { etcd } = counting(direct, (number) => number === 2 && expire());
    const stock = etcdInventory(etcd, { prefix: "late/" });
    const closing = { sku: "a", reservation: "r", operationId: "2" };
    expect(await stock.confirm(closing)).toMatchObject({ outcome: "closed" });
    await stock.expire("a");
    expect(await stock.get("a")).toMatchObject({ onHand: 5, reserved: 0, sold: 0 });
    await direct.close();
  });

  test("a reservation stays open if the change that closes it is refused", async () => {
    const etcd = etcdClient({ endpoints: server.endpoints });
    const stock = etcdInventory(etcd, { prefix: "refused/" });
    await using locks = memoryLocks();
    const sku = "a";
    await stock.set({ sku, quantity: 5, operationId: "1" });
    await stock.reserve({ sku, quantity: 2, operationId: "r", expiresIn: 60_000 });
    // The refused change raises the claim all the same.
    const { fence } = await locks.lock(stockLock(sku), { ttl: 60_000, wait: 60_000 });
    const closing = { sku, reservation: "r", fence };
    await expect(stock.confirm({ ...closing, operationId: "1" })).rejects.toMatchObject({
      code: "OPERATION_CONFLICT",
    });
    await pause(100);
    expect(await stock.confirm({ ...closing, operationId: "2" })).toMatchObject({
      outcome: "applied",
    });
    await etcd.close();
  });

  test("a reservation leaves no lease behind if it is closed or not made", async () => {
    const direct = etcdClient({ endpoints: server.endpoints });
    const leases: LeaseId[] = [];
    const { etcd } = counting(direct);
    const stock = etcdInventory(
      {
        ...etcd,
        grant(lease, ...rest) {
          leases.push(lease);
          return direct.grant(lease, ...rest);
        },
      },
      { prefix: "leases/" },
    );
    const sku = "a";
    await stock.set({ sku, quantity: 5, operationId: "1" });
    const reserving = { sku, quantity: 2, operationId: "r", expiresIn: 60_000 };
    await stock.reserve(reserving);
    expect(await stock.reserve(reserving)).toMatchObject({ replayed: true });
    expect(leases).toHaveLength(2);
    const gone = (lease: LeaseId = 0n) =>
      until(async () => (await direct.timeToLive(lease)) === undefined);
    await gone(leases[1]);
    expect(await direct.timeToLive(leases[0] ?? 0n)).toBeGreaterThan(50);
    await stock.cancel({ sku, reservation: "r", operationId: "2" });
    await gone(leases[0]);
    await direct.close();
  });

  test("a reservation that was made after conflicts lasts as long as one that was made at once", async () => {
    const direct = etcdClient({ endpoints: server.endpoints });
    const flaky = faulty(direct);
    const theirs = etcdInventory(direct, { prefix: "conflicts/" });
    const sku = "a";
    const change = (operationId: string) => ({ sku, quantity: 1, operationId });
    let left = 0;
    const txn: typeof direct.txn = async (...args) => {
      if (left > 0 && args[0].when.length > 0) {
        await theirs.decrement(change(`theirs/${left}`));
        await pause(700);
        left -= 1;
      }
      return flaky.etcd.txn(...args);
    };
    const ours = etcdInventory({ ...flaky.etcd, txn }, { prefix: "conflicts/" });
    await ours.set({ ...change("set"), quantity: 50 });
    left = 2;
    await ours.reserve({ ...change("r"), expiresIn: 20_000 });
    const { kvs } = await direct.range(get(stockKeys("conflicts/").open(sku, "r")));
    const unused = flaky.leases.filter((lease) => lease !== kvs[0]?.lease);
    expect(unused.length).toBeGreaterThan(0);
    await until(() => areGone(direct, unused), 15_000);
    await direct.close();
  });

  test("a reservation that is refused leaves no lease behind, and one of unknown outcome keeps its lease", async () => {
    const direct = etcdClient({ endpoints: server.endpoints });
    const flaky = faulty(direct);
    const prefix = "refused-leases/";
    const [ours, theirs] = [
      etcdInventory(flaky.etcd, { prefix }),
      etcdInventory(direct, { prefix }),
    ];
    await using locks = etcdLocks(direct, { prefix });
    const sku = "a";
    const change = (operationId: string) => ({ sku, quantity: 1, operationId });
    const reserving = (operationId: string) => ({ ...change(operationId), expiresIn: 60_000 });
    await ours.set({ ...change("set"), quantity: 50 });
    await theirs.set({ sku: "b", quantity: 50, operationId: "b/set" });
    const lock = await locks.lock(stockLock(sku), { ttl: 60_000, wait: 60_000 });
    const { fence } = lock;
    await ours.decrement({ ...change("1"), fence });
    await lock.unlock();
    const fencedOut = ours.reserve({ ...reserving("2"), fence });
    await expect(fencedOut).rejects.toMatchObject({ code: "FENCED_OUT" });
    await theirs.decrement({ ...change("3"), sku: "b" });
    const used = ours.reserve(reserving("3"));
    await expect(used).rejects.toMatchObject({ code: "OPERATION_CONFLICT" });
    expect(flaky.leases).toHaveLength(2);
    await until(() => areGone(direct, flaky.leases), 30_000);
    const faults: Fault[] = ["answer-lost"];
    flaky.decide = (call) => (call === "txn" ? faults.shift() : undefined);
    await ours.reserve(reserving("4"));
    await pause(200);
    expect(await ours.reservations(sku)).toMatchObject([
      { id: "4", expiresIn: expect.any(Number) },
    ]);
    expect(await direct.timeToLive(flaky.leases[2] ?? 0n)).toBeGreaterThan(50);
    await direct.close();
  });

  test("expired reservations are found among thousands", async () => {
    const etcd = etcdClient({ endpoints: server.endpoints });
    const stock = etcdInventory(etcd, { prefix: "many/" });
    const keys = stockKeys("many/");
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
    const selling = { sku, quantity: 700, operationId: "1" };
    expect(await known(() => stock.decrement(selling))).toMatchObject({ outcome: "applied" });
    await known(() => stock.expire(sku));
    const after = { onHand: 140, reserved: 1_680, sold: 700, supplied: 2_520 };
    expect(await stock.get(sku)).toEqual({ sku, ...after });
    expect(await stock.history(sku, { limit: 10_000 })).toHaveLength(841);
    await etcd.revoke(77n);
    await known(() => stock.expire(sku));
    expect(await stock.get(sku)).toMatchObject({ onHand: 1_820, reserved: 0 });
    await etcd.close();
  });
});
