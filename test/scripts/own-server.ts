import { startServer } from "../../infra/servers/start.ts";

/** own-server: starts a server, prints its process id and folder, and waits to be killed. */
const { nodes } = await startServer("mysql");
process.stdout.write(`${nodes[0]?.pid} ${nodes[0]?.place.folder}\n`);
setInterval(() => {}, 1_000);
