import type { Etcd } from "../../core/etcd/etcd.ts";

/**
 * A client that counts its requests for keys and leases, each of which is one round trip; `onRequest` is told
 * the number of each, and done, before it is sent.
 */
export function counting(
  etcd: Etcd,
  onRequest: (number: number) => unknown = () => {},
): { readonly etcd: Etcd; count(): number } {
  let sent = 0;
  const counted = <A extends unknown[], T>(call: (...args: A) => Promise<T>) => {
    return async (...args: A) => {
      sent += 1;
      await onRequest(sent);
      return call.apply(etcd, args);
    };
  };
  return {
    etcd: {
      address: etcd.address,
      txn: counted(etcd.txn),
      range: counted(etcd.range),
      grant: counted(etcd.grant),
      revoke: counted(etcd.revoke),
      keepAlive: (lease, signal) => etcd.keepAlive(lease, signal),
      timeToLive: (lease, signal) => etcd.timeToLive(lease, signal),
      watch: (keys, watcher) => etcd.watch(keys, watcher),
      close: () => etcd.close(),
      [Symbol.asyncDispose]: () => etcd.close(),
    },
    /** How many since it was asked last. */
    count() {
      const before = sent;
      sent = 0;
      return before;
    },
  };
}
