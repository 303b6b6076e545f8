import { open } from "../../infra/open.ts";

/** once URL NAME: takes the lock, waits in vain for it a second time, closes the store, and must end by itself. */
const [url = "", name = ""] = process.argv.slice(2);
const { locks: store } = await open(url);
const lock = await store.lock(name, { ttl: 60_000, wait: 0 });
await store.lock(name, { ttl: 60_000, wait: 50 }).catch(() => {});
await lock.ensure(60_000);
await store.close();
process.stdout.write("closed\n");
