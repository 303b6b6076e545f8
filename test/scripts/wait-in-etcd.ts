import { EtcdMutex, EtcdSession, openEtcd } from "../../core/stores/etcd/index.ts";

/**
 * wait-in-etcd KIND ENDPOINT NAME: as a candidate, an observer, a lock or a mutex, waits for the turn, or for the next leader,
 * and prints "has it".
 */
const [kind = "", endpoint = "", name = ""] = process.argv.slice(2);
const { signal } = new AbortController();
const { etcd, locks, elections } = await openEtcd({ endpoints: [endpoint] });

async function observe(): Promise<void> {
  const election = await elections.open(name);
  for await (const leader of election.observe()) {
    if (leader?.value === "next") return;
    process.stdout.write("observes\n");
  }
}

const waits: Record<string, () => Promise<unknown>> = {
  candidate: async () => (await elections.open(name)).campaign("waits"),
  observer: observe,
  lock: () => locks.lock(name, { ttl: 20_000, wait: Number.POSITIVE_INFINITY, signal }),
  mutex: async () => new EtcdMutex(etcd, await EtcdSession.open(etcd), name).lock(),
};
await waits[kind]?.();
process.stdout.write("has it\n");
process.exit();
