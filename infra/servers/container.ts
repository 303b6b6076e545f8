import { fileURLToPath } from "node:url";
import type { ServerName } from "./kinds.ts";
import { freePort, run } from "./processes.ts";
import type { Server } from "./server.ts";
import type { ServerKind } from "./server-kind.ts";

const FILE = fileURLToPath(new URL("../compose.yaml", import.meta.url));

export async function hasDocker(): Promise<boolean> {
  return run("docker", ["compose", "ls"]).then(
    () => true,
    () => false,
  );
}

/** Starts the server in new containers. */
export async function startContainer(name: ServerName, kind: ServerKind): Promise<Server> {
  const ports = await Promise.all(kind.containers.map(freePort));
  const project = `lockstep-${name}-${ports[0]}`;
  await compose(project, ports, "up", "--detach", "--wait", ...kind.containers);
  const images = await compose(project, ports, "config", "--images", ...kind.containers);
  const [version = ""] = images.trim().split("\n");
  const stop = () => stopContainer(project);
  return {
    name,
    version,
    url: kind.url(ports),
    nodes: [],
    project,
    stop,
    [Symbol.asyncDispose]: stop,
  };
}

export async function stopContainer(project: string): Promise<void> {
  await compose(project, [], "down", "--volumes");
}

/** Whether containers of the project run. */
export async function isContainerRunning(project: string): Promise<boolean> {
  const asking = compose(project, [], "ps", "--quiet", "--status", "running");
  return (await asking.catch(() => "")).trim() !== "";
}

function compose(project: string, ports: readonly number[], ...args: readonly string[]) {
  const env = { ...process.env };
  for (const [i, port] of ports.entries()) env[`LOCKSTEP_PORT_${i + 1}`] = String(port);
  return run("docker", ["compose", "-f", FILE, "-p", project, ...args], { env });
}
