import { etcdStore, nodeFetch, openEtcdGateway } from "../../../core/stores/etcd/index.ts";
import { lazily, withLock } from "../../../functions/lambda/index.ts";

const { ETCD_ENDPOINT = "" } = process.env;

const locks = lazily(async () =>
  etcdStore(openEtcdGateway({ endpoints: [ETCD_ENDPOINT], fetch: nodeFetch() })),
);

/** Nothing but a lock: core and etcd's gateway. */
export const handler = withLock(locks, { name: "report" }, async (_, lock) => {
  lock.assertHeld();
  return { fence: String(lock.fence) };
});
