import type { Server, ServerNode } from "../../infra/servers/server.ts";
import { pause, until } from "./until.ts";

/** Kills the server, and starts it again. */
export async function restart(
  { nodes: [node] }: Server,
  whileDown: () => Promise<unknown> = () => pause(300),
): Promise<void> {
  await node?.kill("SIGKILL");
  await whileDown();
  if (node) await startAgain(node);
}

/** Starts a server that has ended: PostgreSQL refuses that until the children of a killed process have ended. */
export async function startAgain(node: ServerNode): Promise<void> {
  const hasStarted = () =>
    node.start().then(
      () => true,
      () => false,
    );
  await until(hasStarted, 60_000);
}
