import type { ServerName } from "../../infra/servers/kinds.ts";
import { startServer } from "../../infra/servers/start.ts";

/** own-server NAME: starts a server, prints the process id and folder of its nodes as JSON, and waits to be killed. */
const { nodes } = await startServer(process.argv[2] as ServerName);
const processes = nodes.map(({ pid, place }) => ({ pid, folder: place.folder }));
process.stdout.write(`${JSON.stringify(processes)}\n`);
setInterval(() => {}, 1_000);
