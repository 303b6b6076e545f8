import { redisClient } from "../../core/stores/redis/client/open.ts";
import { pause } from "../support/until.ts";

/**
 * redis-once PORT…: subscribes and calls on each port, pauses while the test stops the servers, closes the clients
 * during further calls, and must end by itself.
 */
const clients = process.argv
  .slice(2)
  .map((port) => redisClient({ host: "127.0.0.1", port: Number(port) }));
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
