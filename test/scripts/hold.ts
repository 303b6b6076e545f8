import { open } from "../../infra/open.ts";
import { known } from "../support/known.ts";

/** hold URL NAME TTL: takes the lock, prints its fence, and holds the lock until it is killed. */
const [url = "", name = "", ttl = ""] = process.argv.slice(2);
const { locks: store } = await open(url);
const lock = await known(() => store.lock(name, { ttl: Number(ttl), wait: 60_000 }));
process.stdout.write(`${lock.fence}\n`);
setInterval(() => {}, 1_000);
