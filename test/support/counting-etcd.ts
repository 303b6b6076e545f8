import type { Etcd } from "../../core/stores/etcd/client/etcd.ts";

/**
 * Wraps a client so that it counts its requests for keys and leases, each one round trip. Before a request is sent,
 * `onRequest` receives its number and is awaited.
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
    /** Returns the number of requests since the last call. */
    count() {
      const before = sent;
      sent = 0;
      return before;
    },
  };
}
