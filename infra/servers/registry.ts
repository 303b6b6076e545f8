import { mkdir, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { stateFolder } from "../state-folder.ts";
import { isContainerRunning, stopContainer } from "./container.ts";
import { KINDS, type ServerName } from "./kinds.ts";
import { isRunningOn } from "./processes.ts";
import type { ServerKind } from "./server-kind.ts";
import { type StartOptions, startServer } from "./start.ts";

/** The folder of servers that outlive their command: a file per kind, for each user. */
const FOLDER = join(stateFolder(), "servers");

export interface Registered {
  readonly name: ServerName;
  readonly version: string;
  readonly url: string;
  readonly nodes: readonly { readonly pid: number; readonly folder: string }[];

  /** The Docker project, if the server runs in containers. */
  readonly project: string | undefined;

  /** Whether all processes of the server run. */
  readonly running: boolean;
}

/** Starts a server that outlives this process, or returns the running one. */
export async function up(
  name: ServerName,
  onProgress: NonNullable<StartOptions["onProgress"]>,
): Promise<Registered> {
  const [known] = await status(name);
  if (known?.running) return known;
  if (known) await down(name);
  const { version, url, nodes, project } = await startServer(name, {
    stopWithProcess: false,
    onProgress,
  });
  const registered = {
    name,
    version,
    url,
    nodes: nodes.map(({ pid, config }) => ({ pid, folder: config.folder })),
    project,
    running: true,
  };
  await mkdir(FOLDER, { recursive: true });
  await writeFile(fileOf(name), JSON.stringify(registered));
  return registered;
}

/** Stops a server that `up` has started, and deletes its data. */
export async function down(name: ServerName): Promise<void> {
  const { stopSignal = "SIGKILL" }: ServerKind = KINDS[name];
  for (const { nodes, project } of await status(name)) {
    if (project) await stopContainer(project);
    for (const { pid, folder } of nodes) {
      if (isRunningOn(pid, folder)) process.kill(pid, stopSignal);
      await rm(folder, { recursive: true, force: true, maxRetries: 10 });
    }
  }
  await rm(fileOf(name), { force: true });
}

/** Returns the servers that `up` has started and `down` has not stopped. */
export async function status(name?: ServerName): Promise<readonly Registered[]> {
  const files = await readdir(FOLDER).catch((): string[] => []);
  const names = (Object.keys(KINDS) as ServerName[]).filter((each) => !name || each === name);
  const started = names.filter((each) => files.includes(`${each}.json`));
  return Promise.all(
    started.map(async (each) => {
      const registered = JSON.parse(await readFile(fileOf(each), "utf8")) as Registered;
      const { nodes, project } = registered;
      const running = project
        ? await isContainerRunning(project)
        : nodes.every(({ pid, folder }) => isRunningOn(pid, folder));
      return { ...registered, running };
    }),
  );
}

function fileOf(name: ServerName): string {
  return join(FOLDER, `${name}.json`);
}
