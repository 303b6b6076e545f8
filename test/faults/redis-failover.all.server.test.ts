import { expect, test } from "vitest";
import { stockLock } from "../../core/inventory/inventory.ts";
import { hasCode } from "../../core/lock/errors.ts";
import type { Fence } from "../../core/lock/fence.ts";
import type { Lock } from "../../core/lock/lock.ts";
import type { RedisStore } from "../../core/stores/redis/store.ts";
import type { ServerNode } from "../../infra/servers/server.ts";
import { known } from "../support/known.ts";
import { EVERY_VERSION } from "../support/matrix.ts";
import { RedisCluster, type RedisGroup, RedisSentinels } from "../support/redis-group.ts";
import { anyPrefix } from "../support/redis-under-test.ts";
import { until } from "../support/until.ts";

const KILLS = EVERY_VERSION ? 6 : 1;
const SELLERS = 4;
const SKUS = ["cup", "pot", "jug"];
const SUPPLY = 1_000_000;

/** The sales of one seller at a time, by locks, claims and fenced writes. */
class Sale {
  readonly acknowledged: string[] = [];
  attempts = 0;
  lateAttempts = 0;
  lateAccepted = 0;

  /** The last fence whose claim was confirmed, by sku. */
  readonly #claimed = new Map<string, Fence>();

  /** Sells until the signal aborts. Repeats sales of earlier holds, which are late once another holder has claimed. */
  async sell(store: RedisStore, seller: number, signal: AbortSignal): Promise<void> {
    const earlier = new Map<string, Fence>();
    for (let count = 0; !signal.aborted; count += 1) {
      const sku = SKUS[count % SKUS.length] as string;
      const old = earlier.get(sku);
      if (old) await this.#sellLate(store, sku, old, `late-${seller}-${count}`);
      const fence = await this.#sellOnce(store, sku, `sale-${seller}-${count}`);
      if (fence) earlier.set(sku, fence);
    }
  }

  async #sellOnce(store: RedisStore, sku: string, operationId: string): Promise<Fence | undefined> {
    let lock: Lock | undefined;
    try {
      lock = await store.locks.lock(stockLock(sku), { ttl: "5s", wait: "5s" });
      await store.inventory.claim(lock.fence);
      if (String(lock.fence) > String(this.#claimed.get(sku) ?? ""))
        this.#claimed.set(sku, lock.fence);
      this.attempts += 1;
      await store.inventory.decrement({ sku, quantity: 1, operationId, fence: lock.fence });
      this.acknowledged.push(operationId);
    } catch (error) {
      if (!isExpected(error)) throw error;
    } finally {
      await lock?.unlock().catch(() => {});
    }
    return lock?.fence;
  }

  async #sellLate(store: RedisStore, sku: string, fence: Fence, operationId: string) {
    const claimed = this.#claimed.get(sku);
    if (!claimed || String(claimed) <= String(fence)) return;
    this.lateAttempts += 1;
    try {
      await store.inventory.decrement({ sku, quantity: 1, operationId, fence });
      this.lateAccepted += 1;
    } catch (error) {
      if (!isExpected(error)) throw error;
    }
  }
}

function isExpected(error: unknown): boolean {
  const passing = ["STORE_UNAVAILABLE", "UNKNOWN_OUTCOME", "LOCK_TIMEOUT", "LOCK_LOST"] as const;
  return hasCode(error, ...passing, "FENCED_OUT");
}

test.each([
  ["a Redis Cluster", () => RedisCluster.start()],
  ["Redis Sentinel", () => RedisSentinels.start()],
] satisfies [string, () => Promise<RedisGroup>][])(
  "in failovers of %s under load, no late write is accepted and no confirmed sale is lost",
  async (name, start) => {
    await using group = await start();
    const prefix = anyPrefix();
    const open = () => group.store({ prefix, replicas: 1 });
    const admin = open();
    for (const sku of SKUS) {
      await known(() => admin.inventory.set({ sku, quantity: SUPPLY, operationId: `set-${sku}` }));
    }
    const sale = new Sale();
    const ending = new AbortController();
    const selling = Promise.all(
      Array.from({ length: SELLERS }, (_, i) => sale.sell(open(), i, ending.signal)),
    );
    for (let kill = 0; kill < KILLS; kill += 1) {
      await untilMore(sale, 50);
      const master = await group.masterOf(prefix);
      await group.replicaOf(master);
      await master.kill("SIGKILL");
      await until(async () => (await group.masterOf(prefix).catch(() => master)) !== master);
      await master.start();
      await until(() =>
        group
          .masterOf(prefix)
          .then((each) => group.replicaOf(each))
          .catch(() => false),
      );
    }
    await untilMore(sale, 50);
    ending.abort();
    await selling;

    const sold: string[] = [];
    let disorders = 0;
    for (const sku of SKUS) {
      const fences: string[] = [];
      const history = await entriesOf(admin, sku);
      for (const { kind, operationId = "", fence = "" } of history) {
        if (kind !== "decrement") continue;
        if (fence < (fences.at(-1) ?? "")) disorders += 1;
        fences.push(fence);
        sold.push(operationId);
      }
      expect(await admin.inventory.get(sku)).toMatchObject({ onHand: SUPPLY - fences.length });
    }
    const lost = new Set(sale.acknowledged).difference(new Set(sold)).size;
    const { lateAttempts, lateAccepted, attempts, acknowledged } = sale;
    process.stderr.write(
      `${name}: ${KILLS} masters killed, ${attempts} sales tried, ${acknowledged.length} confirmed, ${lost} of them lost; ` +
        `${lateAttempts} late writes tried, ${lateAccepted} accepted\n`,
    );
    expect({ lateAccepted, disorders, lost }).toEqual({ lateAccepted: 0, disorders: 0, lost: 0 });
    expect(new Set(sold).size).toBe(sold.length);
    expect(lateAttempts).toBeGreaterThan(0);
  },
  600_000,
);

async function untilMore(sale: Sale, sales: number): Promise<void> {
  const goal = sale.acknowledged.length + sales;
  await until(() => sale.acknowledged.length >= goal);
}

async function entriesOf({ inventory }: RedisStore, sku: string) {
  const entries = [];
  for (let before: number | undefined; ; ) {
    const page = await inventory.history(sku, { limit: 1_000, ...(before && { before }) });
    entries.push(...page);
    before = page.at(-1)?.seq;
    if (page.length < 1_000) return entries.reverse();
  }
}

test("a promoted server that starts again has the role that the sentinels gave it", async () => {
  await using group = await RedisSentinels.start();
  const prefix = anyPrefix();
  const former = await group.masterOf(prefix);
  await group.failOver(prefix);
  const promoted = await group.masterOf(prefix);
  expect(promoted).not.toBe(former);
  const roleOf = async (node: ServerNode) =>
    [await known(() => group.tell(node, "ROLE"))].flat()[0];
  await until(async () => (await roleOf(former)) === "slave");
  // They would mend a wrong role after a while.
  for (const sentinel of group.sentinels) await sentinel.kill("SIGKILL");
  await promoted.kill("SIGKILL");
  await promoted.start();
  expect(await roleOf(promoted)).toBe("master");
});
