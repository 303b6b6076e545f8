import { openSqlite } from "lockstep/sqlite";

await using shop = await openSqlite("shop.db");
const { locks } = shop;

const lock = await locks.lock("nightly-report", { ttl: "10s", wait: "5s" });
try {
  lock.assertHeld(); // before every effect outside: throws LockLostError once the lock cannot be proven held
  console.log(lock.fence.token > 0n, lock.signal.aborted); // true false
} finally {
  console.log(await lock.unlock()); // released
}

const second = await locks.tryLock("nightly-report", { ttl: "10s" }); // undefined: another client holds the name
await second?.unlock();
await locks.withLock("nightly-report", { ttl: "10s", wait: "5s" }, async ({ signal }) => {
  signal.throwIfAborted(); // pass the signal on to every call of the section
});
