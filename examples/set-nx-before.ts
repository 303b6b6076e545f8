import { randomUUID } from "node:crypto";
import { Redis } from "ioredis";

const RELEASE = `
  if redis.call("GET", KEYS[1]) == ARGV[1] then return redis.call("DEL", KEYS[1]) end
  return 0`;

const redis = new Redis({ host: "127.0.0.1", port: 6379 });
const key = "{lockstep}lock:nightly-report";
const owner = randomUUID();
if ((await redis.set(key, owner, "PX", 10_000, "NX")) === "OK") {
  console.log("report"); // report
  await redis.eval(RELEASE, 1, key, owner);
}
redis.disconnect();
