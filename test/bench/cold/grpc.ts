import { etcdClient } from "../../../core/stores/etcd/client/grpc.ts";
import { etcdLocks } from "../../../core/stores/etcd/locks/index.ts";
import { lazy, lockedHandler } from "../../../functions/lambda/index.ts";

const { ETCD_ENDPOINT = "" } = process.env;

const locks = lazy(async () => etcdLocks(etcdClient({ endpoints: [ETCD_ENDPOINT] })));

/** A lock on core and the etcd client over gRPC alone. */
export const handler = lockedHandler(locks, { name: "report" }, async (_, lock) => {
  lock.assertHeld();
  return { fence: String(lock.fence) };
});
