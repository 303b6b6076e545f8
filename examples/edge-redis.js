import { openRedisRest, problemResponse } from "lockstep/edge";
import { stockLock } from "lockstep/inventory";

export default {
  async fetch(request, env) {
    const { UPSTASH_REDIS_REST_URL: url, UPSTASH_REDIS_REST_TOKEN: token } = env;
    await using shop = await openRedisRest({ url, token }, { prefix: "shop" });
    const operationId = request.headers.get("Idempotency-Key") ?? crypto.randomUUID();
    const sell = async ({ fence }) => {
      const order = { sku: "teapot", quantity: 1, operationId, fence };
      return Response.json(await shop.inventory.decrement(order));
    };
    try {
      return await shop.locks.withLock(stockLock("teapot"), { ttl: "10s", wait: "5s" }, sell);
    } catch (error) {
      const response = problemResponse(error);
      if (response) return response;
      throw error;
    }
  },
};
