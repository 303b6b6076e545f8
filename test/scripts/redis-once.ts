import { openRedis } from "../../core/redis/ioredis.ts";
import { pause } from "../support/until.ts";

/**
 * redis-once PORT…: subscribes and calls through each, gives them a while to be stopped, leaves calls under way,
 * closes, and has to end by itself.
 */
const clients = process.argv
  .slice(2)
  .map((port) => openRedis({ host: "127.0.0.1", port: Number(port) }));
for (const redis of clients) {
  redis.subscribe("a", { ready() {}, message() {} });
  await redis.call(["PING"]).catch(() => {});
}
process.stdout.write("begun\n");
await pause(500);
const calls = Promise.allSettled(clients.map((redis) => redis.call(["PING"])));
await pause(100);
for (const redis of clients) await redis.close();
await calls;
process.stdout.write("closed\n");
