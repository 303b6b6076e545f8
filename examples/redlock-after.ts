import { openRedlock } from "lockstep/redlock";

const ports = [6381, 6382, 6383, 6384, 6385];
await using store = await openRedlock(ports.map((port) => ({ host: "127.0.0.1", port })));
const options = { ttl: "10s", wait: "5s" } as const;
await store.locks.withLock("nightly-report", options, async ({ signal, fence }) => {
  signal.throwIfAborted();
  console.log("report", fence.token > 0n); // report true
});
