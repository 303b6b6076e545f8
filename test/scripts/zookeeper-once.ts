import { zookeeperClient } from "../../core/stores/zookeeper/client/client.ts";
import { pause } from "../support/until.ts";

/**
 * zookeeper-once SERVER WIRE: opens a session on each, pauses while the test cuts the wire, closes the clients during
 * further requests, and must end by itself.
 */
const [server = "", wire = ""] = process.argv.slice(2);
const clients = [server, wire].map((one) => zookeeperClient({ servers: [one] }));
const sessions = await Promise.all(clients.map((client) => client.openSession(4_000)));
for (const session of sessions) await session.read("/", { watch() {} });
process.stdout.write("begun\n");
await pause(500);
const calls = Promise.allSettled(
  sessions.flatMap((session) => [
    session.read("/"),
    session.sync(),
    session.create({ path: "/once-", mode: "sequential" }),
  ]),
);
await pause(100);
await Promise.all(clients.map((client) => client.close()));
await calls;
process.stdout.write("closed\n");
