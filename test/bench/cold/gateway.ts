import { etcdGatewayClient } from "../../../core/stores/etcd/client/gateway.ts";
import { etcdLocks } from "../../../core/stores/etcd/locks/index.ts";
import { nodeFetch } from "../../../core/stores/node-fetch.ts";
import { lazy, lockedHandler } from "../../../functions/lambda/index.ts";

const { ETCD_ENDPOINT = "" } = process.env;

const locks = lazy(async () =>
  etcdLocks(etcdGatewayClient({ endpoints: [ETCD_ENDPOINT], fetch: nodeFetch() })),
);

/** A lock on core and the etcd gateway client alone. */
export const handler = lockedHandler(locks, { name: "report" }, async (_, lock) => {
  lock.assertHeld();
  return { fence: String(lock.fence) };
});
