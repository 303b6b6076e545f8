import { fileURLToPath } from "node:url";
import type { ServerKind, ServerName } from "./kinds.ts";
import { run } from "./node.ts";
import { freePort } from "./processes.ts";
import type { Server } from "./start.ts";

const FILE = fileURLToPath(new URL("../compose.yaml", import.meta.url));

export async function hasDocker(): Promise<boolean> {
  return run("docker", ["compose", "ls"]).then(
    () => true,
    () => false,
  );
}

/** The same server in a container of its own. */
export async function startContainer(name: ServerName, kind: ServerKind): Promise<Server> {
  const port = await freePort();
  const project = `lockstep-${name}-${port}`;
  await compose(project, port, "up", "--detach", "--wait", kind.container);
  const images = await compose(project, port, "images", kind.container);
  const stop = () => stopContainer(project);
  const url = kind.url([port]);
  return {
    name,
    version: images.trim(),
    url,
    nodes: [],
    project,
    stop,
    [Symbol.asyncDispose]: stop,
  };
}

export async function stopContainer(project: string): Promise<void> {
  await compose(project, 0, "down", "--volumes");
}

function compose(project: string, port: number, ...args: string[]) {
  const env = { ...process.env, LOCKSTEP_PORT: String(port) };
  return run("docker", ["compose", "-f", FILE, "-p", project, ...args], { env });
}
