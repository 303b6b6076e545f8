import { open } from "../../infra/open.ts";

/** block URL NAME TTL SPAN: takes the lock, blocks the event loop for SPAN ms, and prints the result of assertHeld. */
const [url = "", name = "", ttl = "", span = ""] = process.argv.slice(2);
const { locks: store } = await open(url);
const lock = await store.lock(name, { ttl: Number(ttl), wait: 10_000 });
process.stdout.write("locked\n");
setTimeout(() => {
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, Number(span));
  try {
    lock.assertHeld();
    process.stdout.write("held\n");
  } catch (error) {
    process.stdout.write(`${(error as { code?: string }).code}\n`);
  }
}, 0);
