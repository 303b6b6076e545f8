import { openStore } from "../../infra/open.ts";

/** once URL NAME: takes the lock, waits for another one in vain, gives both up, and has to end by itself. */
const [url = "", name = ""] = process.argv.slice(2);
const store = await openStore(url);
const lock = await store.lock(name, { ttl: 60_000, wait: 0 });
await store.lock(name, { ttl: 60_000, wait: 50 }).catch(() => {});
await lock.ensure(60_000);
await store.close();
process.stdout.write("closed\n");
