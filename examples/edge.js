import { etcdInventory, lockedFetch } from "lockstep/edge";
import { stockLock } from "lockstep/inventory";

export default {
  fetch: lockedFetch(
    { etcd: (env) => ({ endpoints: [env.ETCD] }), name: stockLock("teapot"), wait: "5s" },
    async (request, { lock, etcd }) => {
      const operationId = request.headers.get("Idempotency-Key") ?? crypto.randomUUID();
      const order = { sku: "teapot", quantity: 1, operationId, fence: lock.fence };
      return Response.json(await etcdInventory(etcd).decrement(order));
    },
  ),
};
