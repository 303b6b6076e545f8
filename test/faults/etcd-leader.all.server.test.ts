import { dirname, join } from "node:path";
import { expect, inject, test } from "vitest";
import { etcdClient } from "../../core/stores/etcd/client/grpc.ts";
import { etcdInventory } from "../../core/stores/etcd/inventory/index.ts";
import { startServer } from "../../infra/servers/start.ts";
import { leaderOf } from "../support/etcd.ts";
import { endpointsOf, QUICK_ETCD } from "../support/etcd-servers.ts";
import { EVERY_VERSION } from "../support/matrix.ts";
import { runScript } from "../support/script.ts";
import { until } from "../support/until.ts";

const KILLS = EVERY_VERSION ? 20 : 6;

interface Span {
  readonly from: bigint;
  readonly to: bigint;
}

test.concurrent.each(inject("etcdServers").filter(({ endpoints }) => endpoints.length === 1))(
  `$name with three nodes whose leader is killed ${KILLS} times: one holder at a time, no sale lost or doubled, and it goes on`,
  async (known) => {
    const kind = "etcd-cluster";
    const binary = join(dirname(known.etcdctl), "etcd");
    await using server = await startServer(kind, { binary, args: QUICK_ETCD[kind] });
    const endpoints = endpointsOf(server);
    const about = { ...known, url: server.url, endpoints };
    await using etcd = etcdClient({ endpoints });
    const inventory = etcdInventory(etcd);
    const sku = "scarce";
    await inventory.set({ sku, quantity: 100_000, operationId: "set" });

    const acknowledged: string[] = [];
    const spans: Span[] = [];
    const sellers = [1, 2, 3, 4].map(() => runScript("sell", server.url, sku, "4"));
    const read = sellers.map(async (seller) => {
      for (let line = await seller.next(); line !== undefined; line = await seller.next()) {
        const { operationId, outcome, from, to } = JSON.parse(line);
        if (outcome) expect(outcome).toBe("applied");
        if (operationId) acknowledged.push(operationId);
        else spans.push({ from: BigInt(from), to: BigInt(to) });
      }
    });

    for (let kill = 0; kill < KILLS; kill += 1) {
      const before = acknowledged.length;
      await until(() => acknowledged.length >= before + 10, 60_000);
      const leader = await until(() => leaderOf(server, about).catch(() => undefined));
      await leader.kill("SIGKILL");
      const killed = acknowledged.length;
      await until(() => acknowledged.length >= killed + 3, 60_000);
      await leader.start();
    }
    for (const { child } of sellers) child.kill("SIGTERM");
    await Promise.all(read);
    for (const { ended } of sellers) expect(await ended).toBe(0);

    spans.sort((a, b) => (a.from < b.from ? -1 : 1));
    expect(spans.length).toBeGreaterThan(KILLS * 10);
    const overlaps = spans.filter(({ from }, i) => i > 0 && from < (spans[i - 1]?.to ?? 0n));
    expect(overlaps).toEqual([]);

    const entries = await inventory.history(sku, { limit: 10_000 });
    const sold = entries.flatMap(({ kind, operationId }) =>
      kind === "decrement" ? [operationId] : [],
    );
    expect(new Set(sold).size).toBe(sold.length);
    expect(acknowledged.filter((id) => !sold.includes(id))).toEqual([]);
    const stock = { sold: sold.length, onHand: 100_000 - sold.length, supplied: 100_000 };
    expect(await inventory.get(sku)).toMatchObject(stock);
  },
  420_000,
);
