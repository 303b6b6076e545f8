import { DurableObject } from "cloudflare:workers";
import * as z from "zod";
import { stockLock } from "../../core/inventory/inventory.ts";
import { hasCode } from "../../core/lock/errors.ts";
import { workflow } from "../../core/steps/workflow.ts";
import type { SqlStore } from "../../core/stores/sql/store.ts";
import { lockstepObject } from "../../functions/cloudflare/index.ts";
import { account } from "../support/account.ts";
import { pause } from "../support/until.ts";

/** Sells one unit, sleeps, and sells another one. */
const sellTwo = ({ inventory }: SqlStore) =>
  workflow(
    { name: "sell-two", version: 1, input: z.object({ id: z.string() }), id: ({ id }) => id },
    async (ctx) => {
      const sell = (name: string) =>
        ctx.step.tx(name, { lock: stockLock("teapot") }, async ({ tx, fence, idempotencyKey }) => {
          const order = { sku: "teapot", quantity: 1, operationId: idempotencyKey, fence };
          return (await inventory.within(tx).decrement(order)).remaining;
        });
      await sell("first");
      await ctx.sleep("between", "1500ms");
      return sell("second");
    },
  );

/** Executes one step for some time, which may ask for more time than an alarm has. */
const call = workflow(
  {
    ...{ name: "call", version: 1 },
    input: z.object({ id: z.string(), span: z.number(), budget: z.string() }),
    id: ({ id }) => id,
  },
  async (ctx, { span, budget }) => {
    await ctx.step("call", { budget: budget as "1s" }, () => pause(span));
  },
);

/** Waits for a payment. */
const order = workflow(
  { name: "order", version: 1, input: z.object({ id: z.string() }), id: ({ id }) => id },
  async (ctx) => ctx.waitFor("paid", z.number()),
);

export class Shop extends lockstepObject(DurableObject) {
  readonly sellTwo = sellTwo(this.store);
  override readonly workflows = [this.sellTwo, call, order];
  override readonly entities = [account];
  #alarms = 0;

  override async alarm(): Promise<void> {
    this.#alarms += 1;
    await super.alarm();
  }

  async alarms(): Promise<number> {
    return this.#alarms;
  }

  /** Plays an alarm. Resolves to the milliseconds until the next one. */
  async wake(): Promise<number> {
    const { storage } = (this as unknown as { ctx: { storage: Alarms } }).ctx;
    await storage.deleteAlarm();
    await this.alarm();
    return ((await storage.getAlarm()) ?? Number.POSITIVE_INFINITY) - Date.now();
  }

  async start(id: string): Promise<string> {
    return (await this.runtime.start(this.sellTwo, { id })).status;
  }

  async order(id: string): Promise<string> {
    return (await this.runtime.start(order, { id })).status;
  }

  async pay(id: string): Promise<string> {
    return this.runtime.signal(id, "paid", 1, { dedupeId: "1" });
  }

  async call(id: string, span: number, budget: string): Promise<string> {
    return (await this.runtime.start(call, { id, span, budget })).status;
  }
}

interface Alarms {
  getAlarm(): Promise<number | null>;
  deleteAlarm(): Promise<void>;
}

interface Env {
  readonly SHOP: { getByName(name: string): Shop };
}

/** Sells one teapot under its lock, or answers that the lock is busy. */
async function sell(env: Env, shopName: string, operationId: string): Promise<Response> {
  await using shop = Shop.open(env.SHOP, shopName);
  const options = { ttl: "20s", wait: "5s", renew: false } as const;
  const selling = shop.locks.withLock(stockLock("teapot"), options, ({ fence }) =>
    shop.inventory.decrement({ sku: "teapot", quantity: 1, operationId, fence }),
  );
  return Response.json(
    await selling.catch((error) => {
      if (hasCode(error, "LOCK_TIMEOUT")) return { outcome: "busy" };
      throw error;
    }),
  );
}

/** A Worker in front of its objects, one per path. */
export default {
  async fetch(request: Request, env: Env): Promise<Response> {
    const { pathname, searchParams } = new URL(request.url);
    const name = pathname.slice(1);
    const id = searchParams.get("id") ?? "";
    if (searchParams.has("sell")) return sell(env, name, id);
    if (searchParams.has("wake")) return Response.json(await env.SHOP.getByName(name).wake());
    if (searchParams.has("alarms")) return Response.json(await env.SHOP.getByName(name).alarms());
    const shop = env.SHOP.getByName(name);
    if (searchParams.has("order")) return Response.json(await shop.order(id));
    if (searchParams.has("pay")) return Response.json(await shop.pay(id));
    const span = searchParams.get("call");
    if (span === null) return Response.json(await shop.start(id));
    return Response.json(await shop.call(id, Number(span), searchParams.get("budget") ?? "1s"));
  },
};
