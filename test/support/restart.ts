import type { Server } from "../../infra/servers/server.ts";
import { pause } from "./until.ts";

/** Kills the server, and starts it again. */
export async function restart(
  { nodes: [node] }: Server,
  whileDown: () => Promise<unknown> = () => pause(300),
): Promise<void> {
  await node?.kill("SIGKILL");
  await whileDown();
  await node?.start();
}
