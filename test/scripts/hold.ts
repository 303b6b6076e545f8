import { openStore } from "../../infra/open.ts";

/** hold URL NAME TTL: takes the lock, prints its fence, and holds it until killed. */
const [url = "", name = "", ttl = ""] = process.argv.slice(2);
const store = await openStore(url);
const lock = await store.lock(name, { ttl: Number(ttl), wait: 10_000 });
process.stdout.write(`${lock.fence}\n`);
setInterval(() => {}, 1_000);
