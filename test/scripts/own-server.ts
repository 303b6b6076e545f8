import type { ServerName } from "../../infra/servers/kinds.ts";
import { startServer } from "../../infra/servers/start.ts";

/** own-server NAME: starts a server, prints the process ids and folders of its nodes as JSON, and waits for its end. */
const { nodes } = await startServer(process.argv[2] as ServerName);
const processes = nodes.map(({ pid, config }) => ({ pid, folder: config.folder }));
process.stdout.write(`${JSON.stringify(processes)}\n`);
setInterval(() => {}, 1_000);
