import { describe, expect, inject, test } from "vitest";
import type { Inventory, StockResult } from "../../core/inventory/inventory.ts";
import { type Etcd, get } from "../../core/stores/etcd/client/etcd.ts";
import { etcdInventory } from "../../core/stores/etcd/inventory/index.ts";
import { startServer } from "../../infra/servers/start.ts";
import { counting } from "../support/counting-etcd.ts";
import { endpointsOf, QUICK_ETCD } from "../support/etcd-servers.ts";
import { longTestTransports } from "../support/etcd-under-test.ts";
import { sellThroughKills } from "../support/sell-through-kills.ts";
import { TcpProxy } from "../support/tcp-proxy.ts";
import { pause } from "../support/until.ts";

const [server = { endpoints: [] }] = inject("etcdServers");

const transports = await longTestTransports();

describe.each(transports)("a change of stock in etcd over $transport", ({ openClient }) => {
  /** Opens a client that reaches the server through a proxy. */
  async function overProxy(): Promise<{ readonly etcd: Etcd; readonly proxy: TcpProxy }> {
    const proxy = await TcpProxy.to(Number(server.endpoints[0]?.split(":")[1]));
    return { etcd: openClient({ endpoints: [`127.0.0.1:${proxy.port}`] }), proxy };
  }

  test("a change is applied once, whichever of its answers is lost", async () => {
    const { etcd: direct, proxy } = await overProxy();
    let losesAt = 0;
    const { etcd, count } = counting(direct, (number) => {
      if (number === losesAt) proxy.loseNextAnswer();
    });
    const stock = etcdInventory(etcd, { prefix: "lost/" });
    let replays = 0;
    const losing = async <T>(call: () => Promise<T>): Promise<T> => {
      // The connection is open, so that the proxy loses an answer to the call, not to a handshake.
      await direct.range(get("ready"));
      count();
      const answer = await call();
      if ((answer as Partial<StockResult> | undefined)?.replayed) replays += 1;
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
    // The lost answers were those of applied changes.
    expect(replays).toBeGreaterThan(10);
    await direct.close();
    await proxy.close();
  });

  test("an aborted change has an unknown outcome, and a second call with its id tells the outcome", async () => {
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
});

describe.each(transports)("an etcd server that is killed, over $transport", ({ openClient }) => {
  test("the server loses no acknowledged decrement and applies none twice", async () => {
    await using own = await startServer("etcd", { args: QUICK_ETCD.etcd });
    const endpoints = endpointsOf(own);
    const clients = Array.from({ length: 4 }, () => openClient({ endpoints }));
    const stocks = clients.map((etcd) => etcdInventory(etcd)) as [Inventory, ...Inventory[]];
    await sellThroughKills(own, stocks);
    for (const etcd of clients) await etcd.close();
  });
});
