import type { Server } from "../../infra/servers/server.ts";
import { pause, until } from "./until.ts";

/** Kills the server, and starts it again: PostgreSQL refuses that until the children of the killed process have ended. */
export async function restart(
  { nodes: [node] }: Server,
  whileDown: () => Promise<unknown> = () => pause(300),
): Promise<void> {
  await node?.kill("SIGKILL");
  await whileDown();
  const hasStarted = () =>
    node?.start().then(
      () => true,
      () => false,
    );
  await until(hasStarted, 60_000);
}
