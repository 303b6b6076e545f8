import { openZooKeeper } from "../../core/zookeeper/client.ts";
import { pause } from "../support/until.ts";

/**
 * zookeeper-once SERVER WIRE: opens a session through both, gives the wire a while to be cut, leaves requests
 * under way, closes, and has to end by itself.
 */
const [server = "", wire = ""] = process.argv.slice(2);
const clients = [server, wire].map((one) => openZooKeeper({ servers: [one] }));
const sessions = await Promise.all(clients.map((client) => client.openSession(4_000)));
for (const session of sessions) await session.read("/", { watch() {} });
process.stdout.write("begun\n");
await pause(500);
const calls = sessions.flatMap((session) => [
  session.read("/"),
  session.sync(),
  session.create({ path: "/once-", mode: "sequential" }),
]);
await pause(100);
await Promise.all(clients.map((client) => client.close()));
await Promise.allSettled(calls);
process.stdout.write("closed\n");
