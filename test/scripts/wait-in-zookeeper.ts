import { openZooKeeper } from "../../core/stores/zookeeper/index.ts";

/**
 * wait-in-zookeeper KIND SERVER ROOT: gets what it does not wait for, and comes to its end; or, as a candidate, an observer or
 * a lock, waits for the turn or for the next leader, and prints "has it".
 */
const [kind = "", server = "", root = ""] = process.argv.slice(2);
const { signal } = new AbortController();
const { locks, elections, zookeeper } = await openZooKeeper({ servers: [server] }, { root });

async function observe(): Promise<void> {
  const election = await elections.open("a");
  for await (const leader of election.observe()) if (leader?.value === "next") return;
}

const gets: Record<string, () => Promise<unknown>> = {
  holder: () => locks.lock("a", { ttl: 3_600_000, wait: 0 }),
  leader: async () => (await elections.open("a", { ttl: 3_600_000 })).campaign("leads"),
  session: () => zookeeper.openSession(3_600_000),
};
const waits: Record<string, () => Promise<unknown>> = {
  candidate: async () => (await elections.open("a")).campaign("waits"),
  observer: observe,
  lock: () => locks.lock("a", { ttl: 20_000, wait: Number.POSITIVE_INFINITY, signal }),
};
await gets[kind]?.();
process.stdout.write("goes on\n");
if (waits[kind]) {
  await waits[kind]();
  process.stdout.write("has it\n");
  process.exit();
}
